"""Cheap proxies of layer importance from one forward and one backward pass."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from layerwise.data.batches import IGNORED, AnyBatch, LabeledBatch
from layerwise.errors import UnsupportedModelError
from layerwise.measure.activations.block_influence import BlockInfluence
from layerwise.measure.activations.padding import check_finite, split_windows, token_mask
from layerwise.measure.language.evaluation_data import EvalData
from layerwise.measure.language.loss import CHUNK
from layerwise.measure.layer_scores import LAYER_SCORES
from layerwise.measure.stats import statistics
from layerwise.measure.stats.float64 import to_float64, widest_dtype
from layerwise.measure.stats.grid import MIN_UNITS
from layerwise.measure.stats.window_sums import WindowSums
from layerwise.plan import Sublayer
from layerwise.results.rows import Score
from layerwise.results.vocabulary import NO_EFFECT, PROXIES, RANDOM_INIT
from layerwise.stack import Stack
from layerwise.stack.blocks import block_list
from layerwise.stack.branches import Branches, edited
from layerwise.stack.inputs import evaluating, main_tensor
from layerwise.stack.quantization import refuse_quantized
from layerwise.stack.streaming.resident import refuse_on_disk
from layerwise.stack.weights import make_random_init

MAX_SAVED_NUMBERS = 1 << 27
"""Maximum number of values saved for the backward pass: 512 MiB in float32."""

SAVED_PER_STATE = 24
"""Approximate number of values that a layer saves for the backward pass, relative to its input."""

Gate = tuple[int, Sublayer | None]
"""A layer and its sublayer (None for the full layer) whose update is multiplied by a factor alpha, the gate."""


@dataclass(frozen=True, slots=True, eq=False)
class Backward:
    """Results of a backward pass: states (batch, seq, hidden), summed NLL in nats (batch,), and `gates` (batch,).

    `states` has the state before the first layer and after each layer. `gates` has the derivative of `nll` with respect
    to each gate alpha, at alpha = 1.
    """

    states: tuple[Tensor, ...]
    nll: Tensor
    gates: Mapping[Gate, Tensor]


def run_backward(stack: Stack, batch: AnyBatch, branches: Branches | None) -> Backward:
    """Run `batch` forward and backward. Call this within `differentiable(stack)`.

    If `branches` is None, gate gradients are computed only for full layers, not for sublayers. Raises `MeasureError` if
    states are not finite.
    """
    with torch.no_grad():
        captured = stack.capture(**batch.inputs)
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
    counted = token_mask(batch.inputs, states[0])
    check_finite(states, counted, [window.document for window in batch.windows])
    nll, gradient = compute_loss_gradient(stack, state.detach(), batch)
    torch.autograd.backward(state, gradient, inputs=[states[0]])
    return Backward(tuple(each.detach() for each in states), nll, gates)


def compute_loss_gradient(stack: Stack, state: Tensor, batch: AnyBatch) -> tuple[Tensor, Tensor]:
    """Return the summed NLL of every window, (batch,), and the gradient of the total with respect to `state`."""
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
        nlls.append(to_float64(nll))
    return torch.cat(nlls), torch.cat(gradients)


@contextmanager
def differentiable(stack: Stack) -> Iterator[None]:
    """Within the context, require gradients only for the weights of layers."""
    refuse_on_disk(stack.model, "differentiate by the weights")
    refuse_quantized(stack.model, "differentiate by the weights")
    blocks = block_list(stack.model, stack.path)
    # Quantized integers have no gradient.
    inside = {id(parameter) for block in blocks for parameter in block.parameters() if parameter.is_floating_point()}
    before = [(parameter, parameter.requires_grad) for parameter in stack.model.parameters()]
    try:
        for parameter, _ in before:
            parameter.requires_grad_(id(parameter) in inside)
        yield
    finally:
        for parameter, flag in before:
            parameter.requires_grad_(flag)


def split_batch(stack: Stack, batch: AnyBatch) -> Iterator[AnyBatch]:
    with torch.no_grad():
        one = {name: value[:1].to(stack.device) for name, value in batch.inputs.items()}
        state = stack.capture(**one).state
    return split_windows(batch, MAX_SAVED_NUMBERS // (SAVED_PER_STATE * stack.depth * state.numel()))


@contextmanager
def _branch_gates(
    stack: Stack, layer: int, branches: Branches | None, gates: dict[Gate, Tensor], windows: int
) -> Iterator[None]:
    def note(part: Sublayer, output: Tensor) -> Tensor:
        _note_gate(gates, (layer, part), output, output.detach(), windows)
        return output

    block = block_list(stack.model, stack.path)[layer]
    with ExitStack() as edits:
        for part, path in ({} if branches is None else branches.paths[layer]).items():
            edits.enter_context(edited(block, path, partial(note, part)))
        yield


def _note_gate(gates: dict[Gate, Tensor], gate: Gate, output: Tensor, added: Tensor, windows: int) -> None:
    dtype = widest_dtype(output.device)

    def note(gradient: Tensor) -> None:
        wide = torch.promote_types(gradient.dtype, torch.float32)
        products = gradient.to(wide) * added.to(wide)
        gates[gate] = products.reshape(windows, -1).sum(dim=1, dtype=dtype)

    gates[gate] = torch.zeros(windows, dtype=dtype, device=output.device)
    if output.requires_grad:
        output.register_hook(note)  # type: ignore[no-untyped-call]


def _row_chunks(stack: Stack, batch: AnyBatch) -> Iterator[slice]:
    windows = len(batch.windows)
    logits = 1 if isinstance(batch, LabeledBatch) else batch.input_ids.shape[1] * int(stack.text_config.vocab_size)
    rows = max(1, CHUNK // logits)
    for start in range(0, windows, rows):
        yield slice(start, min(start + rows, windows))


def proxies(stack: Stack, data: EvalData, *, seed: int = 0) -> list[Score]:
    """Compute all proxies of `stack` on `data`, and as a baseline those of a randomly initialized model, if possible.

    Raises `MeasureError` if states are not finite.
    """
    branches = find_sublayers(stack, data)
    return [*compute_proxies(stack, data, branches, seed=seed), *_null_rows(stack, data, seed)]


def find_sublayers(stack: Stack, data: EvalData) -> Branches | None:
    """Find the sublayers of `stack` by running the first window of `data`; return None if layers cannot be split."""
    inputs = {name: value[:1].to(stack.device) for name, value in data.batches[0].inputs.items()}
    with evaluating(stack.model), torch.no_grad():
        captured = stack.capture(**inputs)
    try:
        return stack.branches(captured)
    except UnsupportedModelError:
        return None


def compute_proxies(stack: Stack, data: EvalData, branches: Branches | None, *, seed: int = 0) -> list[Score]:
    """Compute cheap estimates of layer importance in one pass over `data`, without a baseline.

    The `grad` of the parameters is not changed.

    alpha is a factor on the update that a layer or sublayer adds to the residual stream, and L_w the loss of window w:

        gate_gradient = -dL/dalpha at alpha = 1        the loss increase when skipped, if L is linear in alpha
        gate_sensitivity = sum over windows w of |dL_w/dalpha| / scored tokens

    (Michel et al. 2019, arXiv 1905.10650, equation 2, for heads; squared in Molchanov et al. 2019, arXiv 1906.10771.)
    The sensitivity can only rank the layers of one model, because gradients cancel more in longer windows. The gradient
    has bootstrap intervals, sign-flip p-values and a null band. The sensitivity has Student t intervals.
    """
    influence, gradients, sizes = BlockInfluence(stack.depth), WindowSums(), WindowSums()
    gates: list[Gate] = []
    with evaluating(stack.model), differentiable(stack):
        for part in (part for batch in data.batches for part in split_batch(stack, batch)):
            passed = run_backward(stack, part, branches)
            influence.add(passed.states, token_mask(part.inputs, passed.states[0]), part.windows)
            gates = sorted(passed.gates, key=lambda gate: (gate[0], gate[1] or ""))
            device = passed.gates[gates[0]].device  # the model may be spread over several
            slopes = torch.stack([passed.gates[gate].to(device) for gate in gates])
            scored = torch.tensor([window.scored for window in part.windows], device="cpu")
            # Subtract from zero so that a gate without effect scores 0, not -0.
            gradients.add(0.0 - slopes, scored, part.windows)
            sizes.add(slopes.abs(), scored, part.windows)
    about: list[dict[str, Any]] = [{"layer": layer, "part": part} for layer, part in gates]
    sensitivities = sizes.scores(PROXIES, "gate_sensitivity", about)
    return [*influence.scores(), *_gradient_rows(gradients, about, seed), *sensitivities]


def _gradient_rows(sums: WindowSums, gates: Sequence[Mapping[str, Any]], seed: int) -> list[Score]:
    above, below = sums.units()
    if below.size < MIN_UNITS:
        return sums.scores(PROXIES, "gate_gradient", gates)
    estimate = statistics.paired_bootstrap(above, below, seed=seed)
    test = statistics.assess_effects(above, below, seed=seed)
    tests = zip(test.p.tolist(), statistics.holm(test.p).tolist(), test.mde.tolist(), strict=True)
    counts = sums.documents, sums.tokens
    scores = []
    for about, gate, numbers, band in zip(gates, estimate.each(), tests, test.band.tolist(), strict=True):
        scores.append(Score(PROXIES, "gate_gradient", *gate.row(), *numbers, *counts, **about))
        if math.isfinite(band):
            scores.append(Score(PROXIES, "gate_gradient", 0.0, -band, band, against=NO_EFFECT, **about))
    return scores


def _null_rows(stack: Stack, data: EvalData, seed: int) -> list[Score]:
    try:
        untrained = make_random_init(stack, seed)
    except UnsupportedModelError:
        return []
    scores = compute_proxies(untrained, data, None, seed=seed)
    metrics = {proxy.where["metric"] for proxy in LAYER_SCORES if proxy.is_proxy and proxy.null == RANDOM_INIT}
    return [replace(score, against=RANDOM_INIT) for score in scores if score.metric in metrics]
