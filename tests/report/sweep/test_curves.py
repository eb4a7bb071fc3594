"""Curves: means over draws, their intervals, and where the headline looks."""

from __future__ import annotations

import math

import pytest

from layerwise.report.data import ReportData
from layerwise.report.evidence import Evidence
from layerwise.report.sweep.curves import curve_families, curves, half_depth
from layerwise.results.rows import PlanRecord, Score
from report import synthetic


def record(plan: str, draw: int | None, affected: int = 2) -> PlanRecord:
    return PlanRecord(plan, "painters", "random", affected, draw, 4, 4, 4, 4)


def effect(plan: str, value: float, half: float | None) -> Score:
    low, high = (None, None) if half is None else (value - half, value + half)
    return Score.of("effect", "delta_nll", value, low, high, plan=plan, mde=0.1)


def evidence(*rows: tuple[str, float, float | None]) -> Evidence:
    plans = tuple(record(plan, draw) for draw, (plan, _, _) in enumerate(rows))
    return Evidence.of(ReportData({"depth": 4}, plans, tuple(effect(*row) for row in rows)))


def test_the_interval_of_a_mean_over_draws_holds_both_errors() -> None:
    # Values 1, 2, 3: mean 2, standard error 1/sqrt(3), Student's t at 2 degrees of freedom 4.3027.
    (curve,) = curves(evidence(("0 2 1 3", 1.0, 0.3), ("1 0 2 3", 2.0, 0.3), ("0 1 3 2", 3.0, 0.3)), "painters", "all")
    (point,) = curve.points
    assert point.value == pytest.approx(2.0)
    assert point.high == pytest.approx(2.0 + math.hypot(4.3027 / math.sqrt(3), 0.3), rel=1e-4)
    assert point.low == pytest.approx(2.0 - math.hypot(4.3027 / math.sqrt(3), 0.3), rel=1e-4)


def test_equal_draws_still_carry_the_error_of_their_documents() -> None:
    (curve,) = curves(evidence(("0 2 1 3", 1.0, 0.3), ("1 0 2 3", 1.0, 0.3)), "painters", "all")
    assert (curve.points[0].low, curve.points[0].high) == pytest.approx((0.7, 1.3))


def test_a_draw_without_an_interval_leaves_the_mean_without_one() -> None:
    (curve,) = curves(evidence(("0 2 1 3", 1.0, 0.3), ("1 0 2 3", 1.0, None)), "painters", "all")
    assert curve.points[0].low is None


def test_values_that_are_not_finite_are_left_out() -> None:
    (curve,) = curves(evidence(("0 2 1 3", 1.0, 0.3), ("1 0 2 3", math.nan, 0.3)), "painters", "all")
    assert curve.points[0].value == 1.0


def test_families_of_one_size_have_no_curve() -> None:
    run = Evidence.of(synthetic.run(6, ("painters", "leave_one_out", "every_window")))
    assert curve_families(run) == ("painters", "every_window")


def test_half_depth_prefers_sizes_that_most_strategies_were_run_at() -> None:
    run = Evidence.of(synthetic.run(12))
    assert half_depth(run, "painters") == 5
    assert half_depth(run, "no such family") is None
