"""The draft that promises most: agreement counted at every token, and prices that a text did not choose."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch

from layerwise.data.demo.corpus import demo_corpus
from layerwise.measure.language.evaluation_data import EvalData, tokenize
from layerwise.plan import Plan
from layerwise.search.drafts import DraftTimes, agreements, best_first, draft_times, leaving_out
from layerwise.search.prices import PriceTable
from layerwise.stack import Stack, load


@pytest.fixture(scope="module")
def stack() -> Stack:
    return load("demo")


@pytest.fixture(scope="module")
def data(stack: Stack) -> EvalData:
    return tokenize(stack, demo_corpus(), tokens=96, length=48)


def test_agreement_is_that_of_a_loop_over_the_windows(stack: Stack, data: EvalData) -> None:
    plans = [Plan.parse(text) for text in ("0-11", "0-5 7-11", "0 (1|2) 3-11")]
    equal = dict.fromkeys(plans, 0)
    total = 0
    with torch.inference_mode():
        for window in data.windows:
            ids = torch.tensor([window.ids])
            scored = slice(window.scored_from - 1, window.scored_until - 1)
            own = stack.model(ids).logits[0, scored].argmax(-1)
            total += len(own)
            for plan in plans:
                equal[plan] += int((stack.logits(plan, input_ids=ids)[0, scored].argmax(-1) == own).sum())
    found = agreements(stack, plans, data)
    assert found == {plan: pytest.approx(count / total, abs=1.5 / total) for plan, count in equal.items()}
    assert found[plans[0]] == 1.0 > found[plans[1]]


def made_times(depth: int, layer: float, rest: float, longest: int) -> DraftTimes:
    whole = rest + depth * layer
    table = PriceTable({(number, None): layer for number in range(depth)}, rest)
    return DraftTimes(table, tuple([whole] * (longest + 1)))


def test_the_rate_is_the_written_formula() -> None:
    times = made_times(10, 2.0, 0.0, 4)
    plan = Plan.parse("0-4")
    assert times.rate(plan, 0.5, 0) == 1000 / 20
    assert times.rate(plan, 1.0, 4) == pytest.approx(1000 * 5 / (4 * 10 + 20))
    assert times.rate(plan, 0.5, 1) == pytest.approx(1000 * 1.5 / 30)


def test_a_draft_that_agrees_and_costs_half_comes_first(stack: Stack, data: EvalData) -> None:
    times = made_times(12, 1.0, 0.0, 4)
    plans = [Plan.parse(text) for text in ("0-11", "0 1 3-11", "11")]
    found = best_first(stack, plans, data, times, 4)
    assert [each.rate for each in found] == sorted((each.rate for each in found), reverse=True)
    assert found[0].plan == plans[1]
    assert {each.agreement for each in found if each.plan == plans[0]} == {1.0}


@pytest.mark.slow
def test_leaving_out_goes_down_to_one_layer(stack: Stack, data: EvalData) -> None:
    way = leaving_out(stack, data)
    assert [len(plan.order()) for plan in way] == list(range(11, 0, -1))
    assert all(set(small.order()) < set(large.order()) for large, small in pairwise(way))


def test_times_are_of_every_layer_and_of_every_length(stack: Stack) -> None:
    times = draft_times(stack, context=16, longest=2, repeats=1)
    assert len(times.verify) == 3
    assert len(times.table.pieces) >= stack.depth
    assert times.draft(Plan.parse("0-5")) < times.draft(Plan.parse("0-11"))
