"""The work of a sweep: layers and heads on all tokens, intervals, and the passes that compare hidden states.

A few layers and a head are timed on a few of the batches, the typical one first; how many there are is counted.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate

import torch

from layerwise.data.batches import AnyBatch
from layerwise.data.text.tokens import Window
from layerwise.experiments.engines.steps import Work, WorkCost, is_short, repeated, sampled, slow_seconds
from layerwise.measure.activations.plan_states import plan_states
from layerwise.measure.activations.similarity import similarity_sums
from layerwise.measure.interventions.sweep import CostEstimate, CostMeter
from layerwise.measure.interventions.sweep_pieces import head_in_layers
from layerwise.measure.language.evaluation_data import EvalData
from layerwise.measure.language.loss import window_losses
from layerwise.measure.stats.effects import effects
from layerwise.plan import Plan
from layerwise.results import Loss
from layerwise.stack import Stack
from layerwise.stack.blocks import block_list
from layerwise.stack.executors.graph import build, most_live
from layerwise.stack.inputs import evaluating
from layerwise.train.trial_steps import spread

_LAYERS = 4
"""Layers that are timed on a batch, with one head."""

_PLANS_OF_INTERVALS = 8

_STATES = 1.5
"""Passes that one which compares its hidden states is worth, about."""

BYTES_A_LOSS = 40
"""Of a row in the store, with its share of the index."""

BYTES_OF_REPORT = 1_700_000
"""Of the page, most of which is what draws its figures."""


def sweep_works(
    stack: Stack, plans: Sequence[Plan], data: EvalData, due: CostEstimate, compared: Sequence[Plan] = ()
) -> Iterator[Work]:
    """The losses of `plans` on `data` of which `due` is left, their intervals, and the passes that compare hidden
    states, under the plans `compared`."""
    meter = CostMeter()
    windows = [window for batch in data.batches for window in batch.windows]
    yield from priced_work("losses", stack, plans, data, due, len(plans) * len(windows), meter)
    intervals = min(_PLANS_OF_INTERVALS, len(plans))
    rows = _invented(plans[:intervals], windows)

    def once() -> float:
        effects(rows, str(plans[0]))
        return (len(plans) - 1) / max(1, intervals - 1)

    yield Work("intervals", repeated(once, f"x {intervals} of {len(plans)} plans"))
    if compared:
        yield _state_work("similarity", stack, data, meter, 1, lambda batch: similarity_sums(stack, [batch]))
        passes, first = len(compared), compared[0]
        yield _state_work("states", stack, data, meter, passes, lambda batch: plan_states(stack, first, [batch]))


def priced_work(
    name: str, stack: Stack, plans: Sequence[Plan], data: EvalData, due: CostEstimate, rows: int, meter: CostMeter
) -> Iterator[Work]:
    """The layer evaluations and heads of `due`, as `plans` need them; none where nothing is due.

    `meter` holds what was measured. At the end there are `rows` in the store.
    """
    if not due.head_tokens:
        return
    largest = max(batch.size for batch in data.batches)
    beyond = most_live(build(plans)) - 1
    measure = _layers_and_heads(stack, data, due, meter, BYTES_A_LOSS * rows + BYTES_OF_REPORT)
    yield Work(name, measure, memory_bytes=max(0, beyond * largest * _width(stack) * stack.dtype.itemsize))


def is_short_due(stack: Stack, due: CostEstimate, data: EvalData) -> bool:
    """Whether nothing is due, or even a slow processor computes it in a short time, in batches as large as those of
    `data`."""
    return not due.head_tokens or is_short(slow_due(stack, due, data))


def slow_due(stack: Stack, due: CostEstimate, data: EvalData) -> float:
    """The seconds that a slow processor takes for what is due, in batches as large as those of `data`."""
    largest = max(batch.size for batch in data.batches)
    return slow_seconds(_operations(stack, due), due.head_tokens / largest)


def typical_batch(data: EvalData) -> AnyBatch:
    """The batch of median size, by the tokens that run: half of them are in batches that are no larger."""
    sized = _by_size(data)
    behind = list(accumulate(batch.size for batch in sized))
    return sized[bisect_left(behind, behind[-1] / 2)]


def _state_work(
    name: str, stack: Stack, data: EvalData, meter: CostMeter, passes: int, on: Callable[[AnyBatch], object]
) -> Work:
    """`passes` over the text that look at every hidden state, by the typical batch: twice, since once warms up.

    Where `meter` says that two passes of its layers have no time, they are not measured.
    """
    batch = typical_batch(data)
    pieces = passes * sum(each.size for each in data.batches) / batch.size

    def once() -> float:
        on(batch)
        return pieces

    def least() -> float:
        return 2 * stack.depth * batch.size * meter.layer_seconds / max(1, meter.layer_tokens)

    def roughly() -> float:
        return _STATES * pieces * least() / 2

    return Work(name, repeated(once, f"x 1 of {len(data.batches):,} batches"), least=least, roughly=roughly)


def _layers_and_heads(
    stack: Stack, data: EvalData, due: CostEstimate, meter: CostMeter, disk: int
) -> Callable[[float], WorkCost]:
    """Measures what is due, at the price of a layer and of a head, which `meter` takes down.

    The smallest batch warms up, and has no price: what a call takes, whatever its size, is most of it. The median one
    comes first, then the largest, which holds the most memory, then any.
    """
    sized = _by_size(data)
    first = (sized[0], typical_batch(data), sized[-1])

    def once(number: int) -> float:
        batch = first[number] if number < len(first) else sized[spread(number - 1, len(sized))]
        with evaluating(stack.model), torch.inference_mode():
            _walk(stack, batch, max(0, number - 1), meter if number else CostMeter())
        return _seconds(due, meter) if number else 0.0

    return sampled(once, f"of {len(sized):,} batches", disk, different=len(sized))


def _walk(stack: Stack, batch: AnyBatch, number: int, meter: CostMeter) -> None:
    """Some layers from all over the model, in their order, and the head behind them; others for each `number`."""
    captured = stack.capture(**{name: value.to(stack.device) for name, value in batch.inputs.items()})
    layers = sorted({spread(_LAYERS * number + turn, stack.depth) for turn in range(_LAYERS)})
    state, begun = captured.state, _now(stack)
    for layer in layers:
        state = stack.apply(layer, state, captured)
    there = _now(stack)
    window_losses(stack, state, batch)
    meter.add(batch.size, len(layers), there - begun, _now(stack) - there)


def _now(stack: Stack) -> float:
    """The time at which the device is done with all that it was given."""
    if stack.device.type != "cpu":
        torch.accelerator.synchronize()
    return time.perf_counter()


def _by_size(data: EvalData) -> list[AnyBatch]:
    return sorted(data.batches, key=lambda batch: batch.size)


def _seconds(due: CostEstimate, meter: CostMeter) -> float:
    layers = due.layer_tokens * meter.layer_seconds / meter.layer_tokens
    return layers + due.head_tokens * meter.head_seconds / meter.head_tokens


def _invented(plans: Sequence[Plan], windows: Sequence[Window]) -> list[Loss]:
    """Rows as a sweep stores them: intervals take as long whatever the losses are."""
    return [
        Loss(str(plan), window.task, window.document, window.index, 1.0 + number, max(1, window.scored), 0)
        for number, plan in enumerate(plans)
        for window in windows
    ]


def _operations(stack: Stack, due: CostEstimate) -> float:
    """Multiplications and additions: two for every weight that a token meets."""
    blocks = block_list(stack.model, stack.path)
    weights = sum(each.numel() for block in blocks for each in block.parameters())
    return 2 * weights / stack.depth * (due.layer_tokens + head_in_layers(stack) * due.head_tokens)


def _width(stack: Stack) -> int:
    return int(getattr(stack.text_config, "hidden_size", 0) or 0)
