"""Estimate the cost of the remaining work, for `--dry-run` and `--minutes`.

One forward pass is timed:

    seconds = seconds per token of this forward pass * tokens of all forward passes

The output head counts as the number of layers that have as many weights (`head_cost_in_layers`).
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Callable, Sequence
from itertools import accumulate, groupby

import torch

from layerwise.data.batches import AnyBatch
from layerwise.measure.cost.memory import peak_bytes
from layerwise.measure.interventions.sweep import CostEstimate, head_cost_in_layers
from layerwise.measure.language.evaluation_data import EvalData, minibatches
from layerwise.measure.language.loss import window_losses
from layerwise.plan import Plan
from layerwise.runner.reporter import format_duration, format_size
from layerwise.runner.tasks import Remaining
from layerwise.stack import Stack
from layerwise.stack.checks.checkpoint_files import numbers_of
from layerwise.stack.executors.graph import build, most_live
from layerwise.stack.inputs import evaluating

SLOW_OPERATIONS = 5e9

TIMED_TOKENS, LONG = 1024, 0.5
"""Number of tokens in a timed batch. If it takes less than `LONG` seconds, a batch of full size is timed."""

SLOW_CALL = 0.01
"""Assumed seconds of a forward pass on a slow CPU."""


def describe_remaining(remaining: Sequence[Remaining], *, timed: bool) -> str:
    """Describe the remaining work. If `timed`, time one step of each kind, and add the total time and memory."""
    clauses, seconds = [], 0.0
    for piece, group in groupby(sorted(remaining, key=lambda each: each.piece), key=lambda each: each.piece):
        alike = list(group)
        count = sum(each.count for each in alike)
        time_one = next((each.time_one for each in alike if each.time_one is not None), None)
        clauses.append(f"{count:,.0f} {piece}")
        if timed and time_one is not None:
            one = time_one()
            seconds += count * one
            clauses[-1] += f" of {one:.2g} s"
    text = f"left: {', '.join(clauses)}"
    if not seconds:
        return text
    memory = peak_bytes() + max(each.memory_bytes for each in remaining)
    return f"{text}; about {format_duration(seconds)} in total, at most {format_size(memory)} of memory"


def time_passes(stack: Stack, data: EvalData) -> float:
    small = minibatches(data, TIMED_TOKENS)[0]
    seconds = time_second_call(lambda: _run_batch(stack, small))
    if seconds > LONG:
        return seconds / small.size
    batch = select_typical_batch(data)
    return time_second_call(lambda: _run_batch(stack, batch)) / batch.size


def time_second_call(run: Callable[[], object]) -> float:
    run()
    begun = time.perf_counter()
    run()
    return time.perf_counter() - begun


def count_tokens(stack: Stack, due: CostEstimate) -> float:
    head = head_cost_in_layers(stack)
    return (due.layer_tokens + head * due.head_tokens) / (stack.depth + head)


def remaining_passes(
    stack: Stack, data: EvalData, due: CostEstimate, plans: Sequence[Plan] = (), pace: float | None = None
) -> Remaining:
    """Count the remaining forward passes, in units of passes over a batch of typical size.

    `plans` are run together, which determines the memory for hidden states. `pace` is the time per token in seconds; by
    default, it is measured.
    """
    batch = select_typical_batch(data)
    beyond = most_live(build(plans)) - 1 if plans else 0
    width = int(getattr(stack.text_config, "hidden_size", 0) or 0) if plans else 0
    largest = max(each.size for each in data.batches)
    return Remaining(
        count_tokens(stack, due) / batch.size,
        "forward passes of a batch",
        lambda: (pace or time_passes(stack, data)) * batch.size,
        max(0, beyond * largest * width * stack.dtype.itemsize),
    )


def fits_in(stack: Stack, due: CostEstimate, data: EvalData, seconds: float) -> bool:
    largest = max(batch.size for batch in data.batches)
    operations = 2.0 * numbers_of(stack.model) * count_tokens(stack, due)
    return operations / SLOW_OPERATIONS + due.head_tokens / largest * SLOW_CALL < seconds


def select_typical_batch(data: EvalData) -> AnyBatch:
    sized = sorted(data.batches, key=lambda batch: batch.size)
    behind = list(accumulate(batch.size for batch in sized))
    return sized[bisect_left(behind, behind[-1] / 2)]


def _run_batch(stack: Stack, batch: AnyBatch) -> None:
    with evaluating(stack.model), torch.inference_mode():
        captured = stack.capture(**batch.inputs)
        window_losses(stack, stack.run(Plan.identity(stack.depth), captured), batch)
