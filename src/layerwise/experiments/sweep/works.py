"""The work of a sweep: layers and heads on all tokens, intervals, and the passes that compare hidden states.

Layers and heads are timed under a few of the plans on a few of the batches; how many there are is counted.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import torch

from layerwise.data.batches import AnyBatch
from layerwise.data.text.tokens import Window
from layerwise.experiments.forecast.work import Work, WorkCost, is_enough, is_short, repeated
from layerwise.measure.activations.plan_states import plan_states
from layerwise.measure.activations.similarity import similarity_sums
from layerwise.measure.interventions.sweep import CostEstimate, CostMeter
from layerwise.measure.interventions.sweep_pieces import final_states, head_in_layers
from layerwise.measure.language.evaluation_data import EvalData
from layerwise.measure.stats.effects import effects
from layerwise.plan import Plan
from layerwise.results.rows import Loss
from layerwise.stack import Stack
from layerwise.stack.blocks import block_list
from layerwise.stack.executors.graph import build, most_live
from layerwise.stack.inputs import evaluating
from layerwise.train.trial_steps import spread

_PLANS = 4
"""Plans under which layers and heads are timed, spread over all of them."""

_PLANS_OF_INTERVALS = 8

BYTES_A_LOSS = 40
"""Of a row in the store, with its share of the index."""

BYTES_OF_REPORT = 1_700_000
"""Of the page, most of which is what draws its figures."""


def loss_works(stack: Stack, plans: Sequence[Plan], data: EvalData, due: CostEstimate) -> Iterator[Work]:
    """The losses of `plans` on `data` of which `due` is left, and their intervals; none if that is short."""
    if is_short_due(stack, due, data):
        return
    windows = [window for batch in data.batches for window in batch.windows]
    intervals = min(_PLANS_OF_INTERVALS, len(plans))
    rows = _invented(plans[:intervals], windows)

    def once() -> float:
        effects(rows, str(plans[0]))
        return (len(plans) - 1) / max(1, intervals - 1)

    yield Work("intervals", repeated(once))
    yield from priced_work("losses", stack, plans, data, due, len(plans) * sum(map(_windows, data.batches)))


def priced_work(
    name: str, stack: Stack, plans: Sequence[Plan], data: EvalData, due: CostEstimate, rows: int
) -> Iterator[Work]:
    """The layer evaluations and heads of `due`, priced under a few of `plans`; none where nothing is due.

    At the end there are `rows` in the store.
    """
    if not due.head_tokens:
        return
    largest = max(batch.size for batch in data.batches)
    count = min(_PLANS, len(plans))
    chosen = [plans[number * len(plans) // count] for number in range(count)]
    beyond = most_live(build(plans)) - most_live(build(chosen))
    measure = partial(_layers_and_heads, stack, chosen, data, due, BYTES_A_LOSS * rows + BYTES_OF_REPORT)
    yield Work(name, measure, memory_bytes=max(0, beyond * largest * _width(stack) * stack.dtype.itemsize))


def is_short_due(stack: Stack, due: CostEstimate, data: EvalData) -> bool:
    """Whether nothing is due, or even a slow processor computes it in a short time, in batches as large as those of
    `data`."""
    largest = max(batch.size for batch in data.batches)
    return not due.head_tokens or is_short(_operations(stack, due), due.head_tokens / largest)


def state_works(stack: Stack, data: EvalData, plans: Sequence[Plan]) -> Iterator[Work]:
    """The similarity of hidden states, and the states under `plans`."""
    yield Work("similarity", by_batch(data.batches, lambda batch: similarity_sums(stack, [batch])))
    if plans:
        yield Work("states", by_batch(data.batches, lambda batch: plan_states(stack, plans[0], [batch]), len(plans)))


def by_batch(
    batches: Sequence[AnyBatch], on: Callable[[AnyBatch], object], times: float = 1.0
) -> Callable[[float], WorkCost]:
    """The measurement of what is done with every batch, `times` times: with some of them, by their tokens."""
    tokens = sum(batch.size for batch in batches)
    order = iter(range(2**31))

    def once() -> float:
        batch = batches[spread(next(order), len(batches))]
        on(batch)
        return times * tokens / batch.size

    return repeated(once)


def _layers_and_heads(
    stack: Stack, plans: Sequence[Plan], data: EvalData, due: CostEstimate, disk: int, seconds: float
) -> WorkCost:
    """The cost of what is due, at the measured price of a layer and of a head.

    The smallest batch warms up; the largest, which holds the most memory, comes next, then any.
    """
    begun = time.perf_counter()
    graph = build(plans)
    meter, sized = CostMeter(), sorted(data.batches, key=lambda batch: batch.size)
    with evaluating(stack.model), torch.inference_mode():
        for number in range(2 * len(data.batches) + 1):
            batch = sized[-number] if number < 2 else data.batches[spread(number - 1, len(data.batches))]
            walked = CostMeter()
            for each in final_states(stack, batch, graph, None):
                walked.add(batch.size, each.evaluations, each.layer_seconds, each.head_seconds)
                if not number or is_enough(begun, seconds, _seconds(due, _sum(meter, walked))):
                    break
            meter = walked if number <= 1 else _sum(meter, walked)
            if is_enough(begun, seconds, _seconds(due, meter)):
                break
    return WorkCost(_seconds(due, meter), disk)


def _seconds(due: CostEstimate, meter: CostMeter) -> float:
    layers = due.layer_tokens * meter.layer_seconds / meter.layer_tokens
    return layers + due.head_tokens * meter.head_seconds / meter.head_tokens


def _sum(one: CostMeter, other: CostMeter) -> CostMeter:
    return CostMeter(
        one.layer_tokens + other.layer_tokens, one.head_tokens + other.head_tokens,
        one.layer_seconds + other.layer_seconds, one.head_seconds + other.head_seconds,
    )  # fmt: skip


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


def _windows(batch: AnyBatch) -> int:
    return len(batch.windows)


def _width(stack: Stack) -> int:
    return int(getattr(stack.text_config, "hidden_size", 0) or 0)
