"""Curves: means over draws, and the headline's point."""

import math
from dataclasses import replace

from layerwise.page.data import ReportData
from layerwise.page.derived.curves import compute_curves
from layerwise.results.rows import PlanRecord, Score
from layerwise.results.selection import Rows

ORDERS = ("0 2 1 3", "1 0 2 3", "0 1 3 2")


def test_intervals_of_means_over_draws_come_from_rows() -> None:
    plans = tuple(PlanRecord(plan, "painters", "random", 2, at, 4, 4, 4, 4) for at, plan in enumerate(ORDERS))
    draws = tuple(
        Score("effect", "delta_nll", value, value - 0.3, value + 0.3, plan=plan)
        for plan, value in zip(ORDERS, (1.0, 3.0, math.nan), strict=True)
    )
    own = Score(
        "contrast", "delta_nll", 2.0, 1.5, 2.7, claim="strategies", family="painters", strategy="random", affected=2
    )

    def mean(*rows: Score) -> Score:
        drawn = Rows(compute_curves(ReportData({"depth": 4}, plans, (*draws, *rows))))
        assert [row.seed for row in drawn[:-1]] == [0, 1]  # without values that are not finite
        (found,) = drawn.where(seed=None, strategy="random", family="painters", affected=2)
        return found

    assert (mean().value, mean().low, mean().high) == (2.0, None, None)
    assert (mean(own).low, mean(own).high) == (1.5, 2.7)
    assert (mean(replace(own, affected=3)).low, mean(replace(own, task="text")).low) == (None, None)
