"""Gates of every layer and branch of a supported model: their derivatives against finite differences of built gates.

A gate multiplies what a layer, or a branch of it, adds to the residual stream (`layerwise.measure.backward`).
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.overrides import TorchFunctionMode

from contracts import specimen
from contracts.specimen import DEPTH, Specimen
from layerwise.data.batches import Batch, LabelledBatch, item
from layerwise.data.tokens import Window
from layerwise.errors import UnsupportedModel
from layerwise.measure.backward import backward, differentiable
from layerwise.measure.proxies import Branches
from layerwise.stack import Stack, load
from layerwise.stack.branches import edited
from layerwise.stack.inputs import main_tensor

STEPS = (0.002, 0.0005, 0.02)
"""The others are for a loss that bends within the first, as at the corner of a ReLU."""

TOLERANCE = 5e-3
"""Of the largest gate. The rounding of float32 in a loss of some 100 nats, 6e-6, is divided by 12 steps and taken 18
times: 0.005 nats at the first step, beside gates of 5 and more. A gate that is wrong is off by a part of itself."""

OWN_GRADIENT = {"yoso": "its attention has a backward pass of its own, which is not the derivative of its forward pass"}
"""Types whose gates are not what a step finds, and why."""


def check_gates(one: Specimen) -> bool:
    """Every gate equals its finite difference, and that of a branch is not the layer's; `False` without a loss."""
    stack = load(specimen.build(one))
    batch = _batch(one, stack)
    if batch is None:
        return False
    with torch.no_grad():
        captured = stack.capture(**batch.inputs)
    try:
        branches = stack.branches(captured)
    except UnsupportedModel:
        branches = None
    with differentiable(stack):
        found = backward(stack, batch, branches).gates
    scale = max(float(gate.abs().max()) for gate in found.values())
    assert len(found) == DEPTH * (1 if branches is None else 3)
    for subject, gate in found.items():
        error = torch.full_like(gate, torch.inf)
        for step in STEPS:
            error = error.minimum((gate - _difference(stack, batch, branches, subject, step)).abs())
            if error.max() <= TOLERANCE * scale:
                break
        assert error.max() <= TOLERANCE * scale, f"gate {subject}: off by {error.max():.2g} of at most {scale:.2g}"
    return True


def _difference(
    stack: Stack, batch: Batch | LabelledBatch, branches: Branches | None, subject: str, step: float
) -> Tensor:
    """The central difference of every window's loss by a gate at 1, from four points."""
    losses = {}
    with _Routed() as routed:
        for alpha in (1.0, 1 + step, 1 - step, 1 + 2 * step, 1 - 2 * step):
            losses[alpha] = _loss(stack, batch, branches, subject, alpha)
            routed.again()
    near, far = (losses[1 + width] - losses[1 - width] for width in (step, 2 * step))
    return (8 * near - far) / (12 * step)


def _batch(one: Specimen, stack: Stack) -> Batch | LabelledBatch | None:
    """A batch with a target for every token, or for every image; `None` for a model whose output has no classes."""
    inputs = specimen.inputs(one, stack.model)
    output = stack.model(**inputs)
    if not isinstance(output, Mapping) or "logits" not in output:
        return None
    chance = torch.Generator().manual_seed(3)
    logits = output["logits"]
    targets = torch.randint(0, logits.shape[-1], logits.shape[:-1], generator=chance)
    if one.kind in ("decoder", "encoder"):
        ids = inputs["input_ids"]
        windows = tuple(
            Window(f"d{row}", "t", 0, tuple(each.tolist()), 0, ids.shape[1]) for row, each in enumerate(ids)
        )
        return Batch(ids, inputs["attention_mask"], targets, windows)
    return LabelledBatch(inputs, targets, tuple(item(f"i{row}") for row in range(len(targets))))


class _Routed(TorchFunctionMode):
    """Routers choose the experts that they chose in the first of the passes: a choice is no smooth function."""

    def __init__(self) -> None:
        super().__init__()
        self.chosen: list[Tensor] = []
        self.place: int | None = None

    def again(self) -> None:
        """The next pass chooses as the first one did."""
        self.place = 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        if func not in (torch.topk, Tensor.topk):
            return found
        if self.place is None:
            self.chosen.append(found.indices)
            return found
        indices = self.chosen[self.place]
        self.place += 1
        return type(found)((args[0].gather(-1, indices), indices))


@torch.no_grad()
def _loss(stack: Stack, batch: Batch | LabelledBatch, branches: Branches | None, subject: str, alpha: float) -> Tensor:
    """Every window's loss when the gate of `subject` stands at `alpha`: built, not differentiated."""
    layer, _, part = subject.partition(".")
    with ExitStack() as gates:
        if part:
            assert branches is not None
            path = branches.paths[int(layer)][part]  # type: ignore[index]
            gates.enter_context(edited(stack.block(int(layer)), path, lambda output: alpha * output))
        captured = stack.capture(**batch.inputs)
        state = captured.state
        for each in range(stack.depth):
            after = stack.apply(each, state, captured)
            if subject == str(each):
                after = stack.note(each, state, torch.lerp(state, after, alpha))
            state = after
        logits = main_tensor(stack.finish(state, captured.inputs)).double()
    each = cross_entropy(logits.flatten(0, -2), batch.targets.flatten(), reduction="none")
    return each.view(len(batch.windows), -1).sum(dim=1)
