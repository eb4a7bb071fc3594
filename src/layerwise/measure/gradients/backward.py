"""Run one forward and one backward pass with the derivative of a gate on every layer and branch.

A gate scales the update u of a layer or branch, x + alpha u. A hook computes its derivative at alpha = 1:
    d nll / d alpha = sum over tokens of <d nll / d (x + alpha u), u>
The loss at the last hidden state is computed in chunks, because of the memory of logits.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from layerwise.data.batches import IGNORED, AnyBatch, LabelledBatch
from layerwise.measure.activations.padding import captured_batch, check_finite, counted_tokens, some_windows
from layerwise.measure.language.loss import CHUNK
from layerwise.measure.stats.float64 import exact, widest
from layerwise.plan import Sublayer
from layerwise.stack import Stack
from layerwise.stack.blocks import block_list
from layerwise.stack.branches import Branches, Edit, edited
from layerwise.stack.inputs import main_tensor
from layerwise.stack.quantisation import refuse_quantised
from layerwise.stack.streaming.resident import refuse_on_disk

HELD = 1 << 27
"""Numbers that a pass may hold for its way back: 512 MiB in float32."""

HELD_BY_LAYER = 24
"""About how many numbers a layer holds for its way back, as a multiple of the states that it reads."""


Gate = tuple[int, Sublayer | None]
"""A layer, and which half of it; none for the whole."""


@dataclass(frozen=True, slots=True, eq=False)
class Backward:
    """Results of one pass: `states` (batch, seq, width) before the first layer and after each, `nll` (batch,) in nats.

    `gates` has the derivative of each window's `nll` by a layer's or branch's gate at alpha = 1, (batch,).
    """

    states: tuple[Tensor, ...]
    nll: Tensor
    gates: Mapping[Gate, Tensor]


def backward(stack: Stack, batch: AnyBatch, branches: Branches | None) -> Backward:
    """Run `batch` forward and back; call within `differentiable(stack)`. Without `branches`, gates are whole layers.

    Raises `MeasureError` for a state or a loss that is not finite.
    """
    with torch.no_grad():
        captured = captured_batch(stack, batch)
    gates: dict[Gate, Tensor] = {}
    state = captured.state.detach().requires_grad_()
    states = [state]
    with torch.enable_grad():
        for layer in range(stack.depth):
            with _branch_gates(stack, layer, branches, gates, len(state)):
                after = stack.apply(layer, state, captured)
            _note_gate(gates, (layer, None), after, after.detach() - state.detach(), len(state))
            state = after
            states.append(state)
    counted = counted_tokens(batch.inputs, states[0])
    check_finite(states, counted, [window.document for window in batch.windows])
    nll, gradient = loss_gradient(stack, state.detach(), batch)
    torch.autograd.backward(state, gradient, inputs=[states[0]])
    return Backward(tuple(each.detach() for each in states), nll, gates)


def loss_gradient(stack: Stack, state: Tensor, batch: AnyBatch) -> tuple[Tensor, Tensor]:
    """Return the summed NLL of every window, (batch,), and the gradient of their sum by `state`, in window chunks."""
    inputs = {name: value.to(state.device) for name, value in batch.inputs.items()}
    targets = batch.targets.to(state.device)
    nlls, gradients = [], []
    for rows in _row_chunks(stack, batch):
        part = state[rows].detach().requires_grad_()
        with torch.enable_grad():
            logits = main_tensor(stack.finish(part, {name: value[rows] for name, value in inputs.items()}))
            wide = logits.to(torch.promote_types(logits.dtype, torch.float32))
            each = functional.cross_entropy(
                wide.flatten(0, -2), targets[rows].flatten(), ignore_index=IGNORED, reduction="none"
            )
            nll = each.view(len(part), -1).sum(dim=1)
        gradients.append(torch.autograd.grad(nll.sum(), part)[0])
        nlls.append(exact(nll))
    return torch.cat(nlls), torch.cat(gradients)


@contextmanager
def differentiable(stack: Stack) -> Iterator[None]:
    """Within the context the weights of the blocks, and no others, can be differentiated by; restored on exit."""
    refuse_on_disk(stack.model, "differentiate by the weights")
    refuse_quantised(stack.model, "differentiate by the weights")
    blocks = block_list(stack.model, stack.path)
    # Quantized integers cannot be differentiated by.
    inside = {id(parameter) for block in blocks for parameter in block.parameters() if parameter.is_floating_point()}
    before = [(parameter, parameter.requires_grad) for parameter in stack.model.parameters()]
    try:
        for parameter, _ in before:
            parameter.requires_grad_(id(parameter) in inside)
        yield
    finally:
        for parameter, flag in before:
            parameter.requires_grad_(flag)


def in_parts(stack: Stack, batch: AnyBatch) -> Iterator[AnyBatch]:
    with torch.no_grad():
        one = {name: value[:1].to(stack.device) for name, value in batch.inputs.items()}
        state = stack.capture(**one).state
    return some_windows(batch, HELD // (HELD_BY_LAYER * stack.depth * state.numel()))


@contextmanager
def _branch_gates(
    stack: Stack, layer: int, branches: Branches | None, gates: dict[Gate, Tensor], windows: int
) -> Iterator[None]:
    block = block_list(stack.model, stack.path)[layer]
    with ExitStack() as edits:
        for part, path in ({} if branches is None else branches.paths[layer]).items():
            edits.enter_context(edited(block, path, _noting(gates, (layer, part), windows)))
        yield


def _noting(gates: dict[Gate, Tensor], gate: Gate, windows: int) -> Edit:
    def note(output: Tensor) -> Tensor:
        _note_gate(gates, gate, output, output.detach(), windows)
        return output

    return note


def _note_gate(gates: dict[Gate, Tensor], gate: Gate, output: Tensor, added: Tensor, windows: int) -> None:
    dtype = widest(output.device)

    def note(gradient: Tensor) -> None:
        wide = torch.promote_types(gradient.dtype, torch.float32)
        products = gradient.to(wide) * added.to(wide)
        gates[gate] = products.reshape(windows, -1).sum(dim=1, dtype=dtype)

    gates[gate] = torch.zeros(windows, dtype=dtype, device=output.device)
    if output.requires_grad:
        output.register_hook(note)  # type: ignore[no-untyped-call]


def _row_chunks(stack: Stack, batch: AnyBatch) -> Iterator[slice]:
    windows = len(batch.windows)
    logits = 1 if isinstance(batch, LabelledBatch) else batch.input_ids.shape[1] * int(stack.text_config.vocab_size)
    rows = max(1, CHUNK // logits)
    for start in range(0, windows, rows):
        yield slice(start, min(start + rows, windows))
