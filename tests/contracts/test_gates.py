"""Gate gradients equal four-point finite differences to 1e-6 of the largest (float64, step 1e-5)."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from contracts import specimen
from contracts.specimen import Specimen
from contracts.tiers import EVERY_TAG, every_type
from layerwise.data.batches import LabeledBatch, make_item
from layerwise.errors import UnsupportedModelError
from layerwise.measure.gradients.proxies import differentiable, run_backward
from layerwise.plan import SUBLAYERS
from layerwise.stack import Stack, load
from layerwise.stack.branches import Branches
from layerwise.stack.executors.capture import read_state, returned_state, with_returned_state
from layerwise.stack.inputs import main_tensor

LAYERS = (0, 3)
STEP = 1e-5
TOLERANCE = 1e-6

# A block that writes on what a branch has returned, and one that multiplies what its branches add.
FAST = ("granite",)
# Yoso's backward pass is not the derivative of its forward pass but a bound of it (arXiv 2111.09714).
OTHERWISE = pytest.mark.xfail(reason="the model's own gradient is another function", raises=AssertionError, strict=True)


class InDouble(TorchFunctionMode):
    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        function = torch.Tensor.double if function is torch.Tensor.float else function
        named = {name: _wider(value) for name, value in (kwargs or {}).items()}
        return function(*map(_wider, args), **named)


def _wider(value: Any) -> Any:
    return torch.float64 if value is torch.float32 else value


@pytest.fixture(autouse=True)
def _in_double() -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        with InDouble():
            yield
    finally:
        torch.set_default_dtype(before)


@contextmanager
def gated(stack: Stack, branches: Branches | None, subject: str, alpha: float) -> Iterator[None]:
    layer, _, part = subject.partition(".")
    block = stack.block(int(layer))

    def turn_layer(block: nn.Module, args: Any, kwargs: Any, output: Any) -> Any:
        before, after = read_state(args, kwargs), returned_state(output)
        return with_returned_state(output, before + alpha * (after - before))

    def turn_branch(branch: nn.Module, args: Any, output: Any) -> Any:
        return with_returned_state(output, alpha * returned_state(output))

    if part:
        hook = block.get_submodule(branches.paths[int(layer)][part]).register_forward_hook(turn_branch)  # type: ignore[index]
    else:
        hook = block.register_forward_hook(turn_layer, with_kwargs=True)
    try:
        yield
    finally:
        hook.remove()


@torch.no_grad()
def losses_at(stack: Stack, batch: LabeledBatch, branches: Branches | None, subject: str, alpha: float) -> Tensor:
    with gated(stack, branches, subject, alpha):
        output = main_tensor(stack.model(**batch.inputs))
    each = nn.functional.cross_entropy(output.flatten(0, -2), batch.targets.flatten(), reduction="none")
    return each.view(len(output), -1).sum(dim=1)


def subject(one: Specimen) -> tuple[Stack, LabeledBatch, Branches | None]:
    model: Any = specimen.build(one).double()
    model.set_experts_implementation("eager")  # the fast kernels are not for double precision
    inputs = {
        name: value.double() if value.is_floating_point() else value
        for name, value in specimen.inputs(one, model).items()
    }
    stack = load(model)
    with torch.no_grad():
        shape = main_tensor(model(**inputs)).shape
    targets = torch.randint(0, shape[-1], shape[:-1], generator=torch.Generator().manual_seed(5))
    batch = LabeledBatch(inputs, targets, tuple(make_item(f"d{number}") for number in range(len(targets))))
    try:
        return stack, batch, stack.branches(stack.capture(**inputs))
    except UnsupportedModelError:
        return stack, batch, None


def check_gates(stack: Stack, batch: LabeledBatch, branches: Branches | None) -> None:
    with differentiable(stack):
        noted = run_backward(stack, batch, branches).gates
        gates = {f"{layer}.{part}" if part else f"{layer}": each for (layer, part), each in noted.items()}
    parts = ("", *(f".{part}" for part in SUBLAYERS)) if branches is not None else ("",)
    for name in (f"{layer}{part}" for layer in LAYERS for part in parts):
        far_below, below, above, far_above = (
            losses_at(stack, batch, branches, name, 1 + steps * STEP) for steps in (-2, -1, 1, 2)
        )
        expected = (8 * (above - below) - (far_above - far_below)) / (12 * STEP)
        assert expected.abs().max() > 1e-4, f"the test cannot tell whether the gate {name} does anything"
        error = float((gates[name] - expected).abs().max() / expected.abs().max())
        assert error <= TOLERANCE, f"gate {name} is {gates[name].tolist()}, and {expected.tolist()} by differences"


@every_type(fast=FAST, slow=(*EVERY_TAG, "falcon"), marks={"yoso": OTHERWISE})
def test_every_gate_is_the_derivative(one: Specimen) -> None:
    check_gates(*subject(one))
