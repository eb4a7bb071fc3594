"""Pieces of a sweep give bitwise the rows of the whole, however it is cut."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import tiny_llama
from laws.plans import plans as random_plans
from layerwise.data.batches import batches
from layerwise.data.text.tokens import Window
from layerwise.errors import MeasureError
from layerwise.measure.interventions.sweep import TEXT, CostMeter, partition_of, sweep, with_identity
from layerwise.measure.interventions.sweep_pieces import SweepPart, divided, head_in_layers, piece_function, plain_part
from layerwise.measure.language.evaluation_data import EvalData
from layerwise.plan import Plan
from layerwise.plan.families import family
from layerwise.results.rows import Loss
from layerwise.stack import Stack, load
from layerwise.stack.executors.graph import build
from tier import by_tier

DEPTH = 4


@pytest.fixture(scope="module")
def stack() -> Stack:
    return load(tiny_llama(DEPTH))


def text(count: int, tokens: int = 12) -> EvalData:
    windows = [
        Window(f"{number}", "task", 0, tuple((7 * number + place) % 90 + 3 for place in range(9 - number % 3)), 1, 6)
        for number in range(count)
    ]
    return EvalData("text", "0", 9, "next_token", batches(windows, tokens, 0))


@dataclass
class Divided:
    stack: Stack
    data: EvalData
    count: int

    def map(self, pieces: Sequence[Any]) -> Iterator[tuple[int, Any]]:
        function = piece_function(self.stack, {TEXT: self.data})
        for number, piece in reversed(list(enumerate(pieces))):
            yield number, function(piece)


def key(row: Loss) -> tuple[str, str, int]:
    return row.plan, row.document, row.window


@pytest.mark.parametrize(("batches", "workers"), [(2, 1), (1, 2), (2, 4), (3, 2), (5, 4)])
def test_the_rows_are_those_of_one_process_to_the_bit(stack: Stack, batches: int, workers: int) -> None:
    members = [*family("leave_one_out", DEPTH), *family("swap_adjacent", DEPTH)]
    data = text(batches)
    assert len(data.batches) == batches
    whole = sweep(stack, members, data)
    rows = sweep(stack, members, data, runner=Divided(stack, data, workers))
    assert sorted(rows, key=key) == sorted(whole, key=key)


@settings(max_examples=by_tier(fast=3, nightly=25))
@given(st.lists(random_plans(depth=DEPTH, most_steps=12), min_size=1, max_size=6, unique=True), st.integers(1, 3))
def test_any_plans_give_the_same_rows(given: list[Plan], workers: int) -> None:
    stack = load(tiny_llama(DEPTH))
    given = [plan for plan in given if all(step.source is None and step.sublayer is None for step in plan.steps())]
    data = text(2)
    whole = sweep(stack, given, data)
    assert sorted(sweep(stack, given, data, runner=Divided(stack, data, workers)), key=key) == sorted(whole, key=key)


def test_what_is_finished_is_given_to_nobody(stack: Stack) -> None:
    data = text(2)
    whole = sweep(stack, family("leave_one_out", DEPTH), data)
    known = {(row.document, row.plan) for row in whole[::2]}

    def finished(task: str, document: str, window: int) -> frozenset[str]:
        return frozenset(plan for name, plan in known if name == document)

    rows = sweep(stack, family("leave_one_out", DEPTH), data, finished=finished, runner=Divided(stack, data, 2))
    assert sorted(rows, key=key) == sorted((row for row in whole if (row.document, row.plan) not in known), key=key)


def test_the_work_is_what_the_partition_says(stack: Stack) -> None:
    data, meters = text(3), []
    plans = with_identity(stack, family("leave_one_out", DEPTH))
    sweep(stack, plans, data, runner=Divided(stack, data, 2), progress=lambda meter, due: meters.append(meter))
    parted = partition_of(stack, plans, data, 2)
    meter: CostMeter = meters[-1]
    head = head_in_layers(stack)
    assert meter.layer_tokens + head * meter.head_tokens == pytest.approx(sum(parted.parts))
    graph = build(plans)
    tokens = sum(batch.size for batch in data.batches)
    assert parted.whole == pytest.approx(tokens * (graph.evaluations + head * graph.heads))


@given(st.integers(1, 9), st.integers(1, 6), st.sampled_from([0.0, 3.0]))
def test_windows_are_divided_before_plans(batches: int, workers: int, head: float) -> None:
    plans = [Plan.identity(8), *(member.plan for member in family("leave_one_out", 8))]
    parts, parted = divided(dict.fromkeys(range(batches), plans), [10] * batches, workers, head)
    for number in range(batches):
        own = [plan for part in parts if part.batch == number for plan in part.plans]
        assert sorted(own, key=str) == sorted(plans, key=str)
    whole = [part for part in parts if len(part.plans) == len(plans)]
    assert len(whole) >= batches - batches % workers - workers
    if batches % workers == 0:
        assert len(whole) == batches, "equal batches are not cut without need"
        assert parted.bound(workers) == pytest.approx(workers)
        assert parted.duplicates == pytest.approx(0)
    else:
        assert parted.bound(workers) >= 0.7 * min(workers, batches * len(plans) / 3)


def test_batches_of_unequal_size_are_cut_where_that_is_faster() -> None:
    plans = [Plan.identity(8), *(member.plan for member in family("leave_one_out", 8))]
    parts, parted = divided(dict.fromkeys(range(2), plans), [30, 10], 2, 0.0)
    assert len(parts) == 4
    assert parted.bound(2) > 1.7
    assert divided(dict.fromkeys(range(2), plans), [10, 10], 2, 0.0)[1].bound(2) == 2


def test_a_batch_of_another_text_is_refused(stack: Stack) -> None:
    piece = plain_part(SweepPart(0, (Plan.identity(DEPTH),)), "text", text(2).batches[0], None)
    with pytest.raises(MeasureError, match="is not the same in this worker"):
        piece_function(stack, {"text": text(3, 24)})(piece)
