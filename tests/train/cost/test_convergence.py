"""Steps to a loss: curves whose ratio is planted, seeds of their own, and trainings that never reach it."""

from __future__ import annotations

import numpy as np
import pytest

from layerwise.errors import MeasureError
from layerwise.results.rows import Score
from layerwise.train.cost.convergence import ValidationCurve, common_target, convergence_rows
from row_names import named
from tier import by_tier


def trainings(ratio: float, run: int, seeds: int = 5, noise: float = 0.004) -> dict[str, dict[int, ValidationCurve]]:
    """Curves 3 + 6 (step / speed)^-0.4 of a reference and an arm that takes `ratio` times as many steps to any loss."""
    chance = np.random.default_rng(run)
    steps = np.unique(np.geomspace(20, 1_000, 20).astype(int))
    curves: dict[str, dict[int, ValidationCurve]] = {"ltg": {}, "elc": {}}
    for seed in range(seeds):
        own = np.exp(0.05 * chance.standard_normal())  # some seeds are faster, in both arms
        for arm, speed in (("ltg", 1.0), ("elc", ratio * np.exp(0.03 * chance.standard_normal()))):
            losses = 3 + 6 * (steps / (own * speed)) ** -0.4 + noise * chance.standard_normal(len(steps))
            curves[arm][seed] = ValidationCurve(
                tuple(steps.tolist()), tuple(losses.tolist()), 0.5 if arm == "ltg" else 0.6
            )
    return curves


def row(rows: list[Score], name: str, cost: str | None, metric: str) -> Score:
    return next(each for each in rows if (named(each), each.condition, each.metric) == (name, cost, metric))


def test_the_default_target_is_reached_by_every_training_of_the_reference() -> None:
    curves = trainings(0.8, 0)
    rows = convergence_rows(curves, "ltg")
    assert row(rows, "all", None, "loss").value == common_target(curves["ltg"])
    assert not [each for each in rows if (named(each), each.metric) == ("ltg", "censored")]


def test_seconds_count_what_a_step_takes() -> None:
    rows = convergence_rows(trainings(0.8, 0), "ltg", 3.6)
    steps, seconds = (row(rows, "elc - ltg", cost, "ratio").value for cost in ("steps", "seconds"))
    assert seconds == pytest.approx(1.2 * steps)


def test_a_training_that_never_reaches_it_leaves_a_bound() -> None:
    curves = trainings(1.0, 0)
    slow = ValidationCurve((20, 1_000), (9.0, 8.0), 0.6)
    rows = convergence_rows({**curves, "elc": {**curves["elc"], 0: slow}}, "ltg", 3.6)
    assert row(rows, "elc", "steps", "censored").value == 0.2
    bound = row(rows, "elc - ltg", "steps", "ratio")
    assert bound.value > 1
    assert (bound.low, bound.high, bound.p) == (None, None, None)


def test_a_training_that_is_below_it_at_its_first_note_leaves_a_bound_the_other_way() -> None:
    curves = trainings(1.0, 0)
    fast = ValidationCurve((20, 1_000), (3.0, 2.0), 0.6)
    rows = convergence_rows({**curves, "elc": {**curves["elc"], 0: fast}}, "ltg", 3.6)
    cost, ratio = row(rows, "elc", "steps", "cost"), row(rows, "elc - ltg", "steps", "ratio")
    assert (cost.low, cost.high) == (None, None)
    assert (ratio.low, ratio.high, ratio.p) == (None, None, None)
    assert not [each for each in rows if (named(each), each.metric) == ("elc", "censored")], "it was reached"


def test_what_is_no_curve_is_refused_and_without_a_reference_nothing_is_compared() -> None:
    with pytest.raises(MeasureError, match="found 0 steps"):
        ValidationCurve((), ())
    assert convergence_rows({"elc": trainings(1.0, 0)["elc"]}, "ltg") == []


@pytest.mark.simulated
@pytest.mark.parametrize("ratio", [0.6, 1.0, 1.3])
def test_a_planted_ratio_is_met_and_its_interval_holds_it(ratio: float) -> None:
    """Of 500 studies of five seeds: the median within 5 % of the truth, coverage .92 to .98."""
    runs = by_tier(fast=40, full=100, nightly=500)
    ratios = [
        row(convergence_rows(trainings(ratio, run), "ltg", 3.6), "elc - ltg", "steps", "ratio") for run in range(runs)
    ]
    assert np.median([each.value for each in ratios]) == pytest.approx(ratio, rel=0.05)
    covered = sum((each.low or 0) <= ratio <= (each.high or 0) for each in ratios) / runs
    assert (0.92 if runs == 500 else 0.85) <= covered <= (0.98 if runs == 500 else 1)
