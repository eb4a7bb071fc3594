from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import tiny_llama
from laws.plans import plans as random_plans
from layerwise.data.batches import make_batches
from layerwise.data.text.tokens import Window
from layerwise.measure.interventions.sweep import FinalState, SweepShard, compute_shard, count_shards, sweep
from layerwise.measure.language.evaluation_data import EvalData
from layerwise.plan import Plan
from layerwise.plan.families import family
from layerwise.results.rows import Loss
from layerwise.stack import Stack, load
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
    return EvalData("text", "0", 9, "next_token", make_batches(windows, tokens, 0))


@dataclass
class Divided:
    stack: Stack
    count: int

    def map(self, pieces: Sequence[SweepShard]) -> Iterator[tuple[int, list[FinalState]]]:
        for number, piece in reversed(list(enumerate(pieces))):
            yield number, compute_shard(self.stack, piece)


def key(row: Loss) -> tuple[str, str, int]:
    return row.plan, row.document, row.window


@pytest.mark.parametrize(("batches", "workers"), [(2, 1), (1, 2), (2, 4), (3, 2), (5, 4)])
def test_pieces_match_one_process_exactly(stack: Stack, batches: int, workers: int) -> None:
    members = [*family("leave_one_out", DEPTH), *family("swap_adjacent", DEPTH)]
    data = text(batches)
    assert len(data.batches) == batches
    whole = sweep(stack, members, data)
    rows = sweep(stack, members, data, runner=Divided(stack, workers))
    assert sorted(rows, key=key) == sorted(whole, key=key)


@settings(max_examples=by_tier(fast=3, nightly=25))
@given(st.lists(random_plans(depth=DEPTH, most_steps=12), min_size=1, max_size=6, unique=True), st.integers(1, 3))
def test_pieces_of_any_plans_match_one_process(given: list[Plan], workers: int) -> None:
    stack = load(tiny_llama(DEPTH))
    given = [plan for plan in given if all(step.source is None and step.sublayer is None for step in plan.steps())]
    data = text(2)
    whole = sweep(stack, given, data)
    assert sorted(sweep(stack, given, data, runner=Divided(stack, workers)), key=key) == sorted(whole, key=key)


def test_finished_work_is_not_assigned(stack: Stack) -> None:
    data = text(2)
    whole = sweep(stack, family("leave_one_out", DEPTH), data)
    known = {(row.document, row.plan) for row in whole[::2]}

    def finished(task: str, document: str, window: int) -> frozenset[str]:
        return frozenset(plan for name, plan in known if name == document)

    rows = sweep(stack, family("leave_one_out", DEPTH), data, finished=finished, runner=Divided(stack, 2))
    assert sorted(rows, key=key) == sorted((row for row in whole if (row.document, row.plan) not in known), key=key)


@given(st.integers(1, 9), st.integers(1, 6))
def test_windows_are_split_before_plans(batches: int, workers: int) -> None:
    plans, data = [Plan.identity(8), *(member.plan for member in family("leave_one_out", 8))], text(batches)
    count = count_shards(plans, data, workers)
    assert min(2 * workers, batches * len(plans)) <= count <= max(batches, 2 * workers + batches)
    assert (count == batches) == (batches >= 2 * workers)
