"""Times of passes: rows with intervals, in turns, and what cannot be timed."""

from __future__ import annotations

import pytest
import torch
from scipy import stats

from conftest import tiny_llama
from layerwise.errors import MeasureError, UnsupportedModel
from layerwise.measure.cost.pass_time import (
    LEAST_ROUNDS,
    PHASES,
    Phase,
    Setting,
    TimedPass,
    TimedPlan,
    time_rows,
)
from layerwise.measure.stats.estimate import median_interval
from layerwise.plan import Plan
from layerwise.stack import load
from stack.makers import bert

LOOP = Plan.parse("0 (1|2) 5")
PLANS = [TimedPlan(Plan.parse("0-5")), TimedPlan(LOOP), TimedPlan(LOOP, fused=True)]


@pytest.mark.parametrize("phase", PHASES)
def test_two_rows_for_each_plan(phase: Phase) -> None:
    stack = load(tiny_llama().eval())
    rows = time_rows(stack, PLANS, Setting(phase, 2, 4), rounds=LEAST_ROUNDS)
    assert [(row.plan, row.metric) for row in rows] == [
        (subject, metric)
        for subject in ("0-5", "0 (1|2) 5", "0 (1|2) 5, fused")
        for metric in ("ms", "ratio")
    ]  # fmt: skip
    for row in rows:
        assert row.low is not None
        assert row.high is not None
        assert 0 < row.low <= row.value <= row.high
        assert (row.condition, row.documents) == (f"{phase}, batch 2, context 4", LEAST_ROUNDS)
    assert (rows[1].low, rows[1].value, rows[1].high) == (1, 1, 1)


def test_ratios_are_paired_within_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that slows down all the while changes every time, and no ratio."""
    pace = iter(range(1, 1000))
    now = {"pace": 1.0, "plan": 1.0}

    def seconds(self: TimedPass) -> float:
        running = self.stack.running
        assert running is not None
        return len(running.steps()) * now["pace"]

    def progress(done: int, total: int) -> None:
        now["pace"] = float(next(pace) ** 2)

    monkeypatch.setattr(TimedPass, "seconds", seconds)
    rows = time_rows(load(tiny_llama().eval()), PLANS[:2], Setting("prefill", 1, 2), rounds=9, progress=progress)
    assert rows[0].high > 10 * rows[0].low  # type: ignore[operator]
    assert (rows[3].low, rows[3].value, rows[3].high) == pytest.approx((4 / 6, 4 / 6, 4 / 6))


@pytest.mark.parametrize("rounds", [6, 9, 20, 50])
def test_the_interval_holds_the_median_often_enough(rounds: int) -> None:
    low, high = median_interval([float(number) for number in range(rounds)])
    rank = int(low)
    assert (low, high) == (rank, rounds - 1 - rank)
    assert 1 - 2 * stats.binom.cdf(rank, rounds, 0.5) >= 0.95
    assert 1 - 2 * stats.binom.cdf(rank + 1, rounds, 0.5) < 0.95


def test_too_few_rounds_are_refused() -> None:
    with pytest.raises(MeasureError, match="take 6 or more"):
        time_rows(load(tiny_llama().eval()), PLANS, Setting("prefill", 1, 4), rounds=5)


def test_a_model_without_a_cache_has_no_decoding() -> None:
    with pytest.raises(UnsupportedModel, match="time its prefill"):
        time_rows(load(bert().eval()), PLANS[:1], Setting("decode", 1, 4), rounds=LEAST_ROUNDS)


def test_nothing_is_left_behind() -> None:
    stack = load(tiny_llama().eval())
    before = {name: each.clone() for name, each in stack.model.state_dict().items()}
    time_rows(stack, PLANS, Setting("decode", 1, 4), rounds=LEAST_ROUNDS)
    assert stack.running is None
    assert all(torch.equal(each, before[name]) for name, each in stack.model.state_dict().items())
