"""Steps to a loss or a score: planted ratios over seeds and tasks, and trainings that never reach it."""

import numpy as np
import pytest
from scipy.stats import sem, t, ttest_1samp

from layerwise.errors import MeasureError
from layerwise.results.rows import Score
from layerwise.train.cost.convergence import (
    Curves,
    ValidationCurve,
    common_target,
    convergence_rows,
    score_curve,
    tuning_convergence_rows,
)
from row_names import named


def trainings(ratio: float, run: int, seeds: int = 5, noise: float = 0.004) -> dict[str, dict[int, ValidationCurve]]:
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


def test_the_default_target_is_reached_by_every_training_of_an_arm_and_of_the_reference() -> None:
    curves = {**trainings(0.8, 0), "slow": trainings(1.5, 1)["elc"]}
    rows = convergence_rows(curves, "ltg")
    assert row(rows, "all", None, "loss").value == common_target(curves["ltg"])
    targets = {each.arm: each.value for each in rows if each.metric == "loss" and each.arm}
    assert targets["slow"] == common_target(curves["ltg"], curves["slow"]) > common_target(curves["ltg"])
    assert not [each for each in rows if each.metric == "censored"]
    assert all(each.low is not None for each in rows if each.metric == "ratio")


def test_two_equal_arms_are_treated_alike() -> None:
    """The worst seed of the reference was the target: half of the studies had no interval, and in 70 % of the others
    the arm looked faster."""
    faster = []
    for run in range(200):
        arms = trainings(1.0, run)
        ratio = row(convergence_rows(arms, "ltg"), "elc - ltg", "steps", "ratio")
        turned = row(convergence_rows(arms, "elc"), "ltg - elc", "steps", "ratio")
        assert ratio.low is not None
        assert turned.value == pytest.approx(1 / ratio.value)
        faster.append(ratio.value < 1)
    assert 0.4 < np.mean(faster) < 0.6


def test_seconds_count_what_a_step_takes() -> None:
    rows = convergence_rows(trainings(0.8, 0), "ltg", 3.6)
    steps, seconds = (row(rows, "elc - ltg", cost, "ratio").value for cost in ("steps", "seconds"))
    assert seconds == pytest.approx(1.2 * steps)


@pytest.mark.parametrize(("losses", "censored"), [((9.0, 8.0), [0.2]), ((3.0, 2.0), [])], ids=["never", "at once"])
def test_a_training_that_never_reaches_it_or_at_its_first_note_leaves_a_bound(
    losses: tuple[float, float], censored: list[float]
) -> None:
    curves = trainings(1.0, 0)
    changed = {**curves["elc"], 0: ValidationCurve((20, 1_000), losses, 0.6)}
    rows = convergence_rows({**curves, "elc": changed}, "ltg", 3.6)
    cost, ratio = row(rows, "elc", "steps", "cost"), row(rows, "elc - ltg", "steps", "ratio")
    assert (cost.low, cost.high) == (None, None)
    assert (ratio.low, ratio.high, ratio.p) == (None, None, None)
    assert (ratio.value > 1) == bool(censored)
    noted = [each for each in rows if (named(each), each.condition, each.metric) == ("elc", "steps", "censored")]
    assert [each.value for each in noted] == censored


def test_what_is_no_curve_is_refused_and_without_a_reference_nothing_is_compared() -> None:
    with pytest.raises(MeasureError, match="found 0 steps"):
        ValidationCurve((), ())
    assert convergence_rows({"elc": trainings(1.0, 0)["elc"]}, "ltg") == []
    assert tuning_convergence_rows({"rte": {"elc": tuned(1.0)["elc"]}}, "ltg") == []


def test_a_ratio_and_its_interval_are_students_over_seeds_of_the_logarithms() -> None:
    spent = {"ltg": (100, 140, 90), "elc": (60, 100, 80)}
    curves = {
        arm: {seed: ValidationCurve((10, cost, 500), (5.0, 3.6, 3.0)) for seed, cost in enumerate(costs)}
        for arm, costs in spent.items()
    }
    ratio = row(convergence_rows(curves, "ltg", 3.6), "elc - ltg", "steps", "ratio")
    logs = np.log(np.array(spent["elc"]) / np.array(spent["ltg"]))
    interval = t.interval(0.95, 2, loc=logs.mean(), scale=sem(logs))
    assert (ratio.value, ratio.low, ratio.high) == pytest.approx(tuple(np.exp([logs.mean(), *interval])))
    assert ratio.p == pytest.approx(ttest_1samp(logs, 0).pvalue)


STEPS = tuple(int(step) for step in np.unique(np.geomspace(1, 300, 12).round()))


def tuned(ratio: float, run: int = 0, best: float = 0.8) -> Curves:
    chance = np.random.default_rng(run)

    def curve(speed: float) -> dict[int, float]:
        return {step: best - (best - 0.5) * float(np.exp(-step / (30 * speed))) for step in STEPS}

    spread = {seed: float(np.exp(0.05 * chance.standard_normal())) for seed in range(5)}
    return {
        "ltg": {seed: score_curve(curve(own), 0.1) for seed, own in spread.items()},
        "elc": {seed: score_curve(curve(own * ratio), 0.2) for seed, own in spread.items()},
    }


def found(rows: list[Score]) -> dict[tuple[str, str, str | None, str], Score]:
    return {(named(row), row.task, row.condition, row.metric): row for row in rows}


def test_planted_ratios_are_read_off_for_each_task_and_over_all() -> None:
    rows = found(tuning_convergence_rows({"rte": tuned(0.5), "mrpc": tuned(0.9, 1)}, "ltg", 0.75))
    for task, ratio in (("rte", 0.5), ("mrpc", 0.9), ("all", 0.45**0.5)):
        steps, seconds = (rows["elc - ltg", task, cost, "ratio"] for cost in ("steps", "seconds"))
        assert steps.value == pytest.approx(ratio, rel=0.05)
        assert seconds.value == pytest.approx(2 * steps.value)
        assert steps.p_adjusted is not None
    assert rows["all", "rte", None, "score"].value == pytest.approx(0.75)


def test_the_score_is_the_highest_that_every_training_of_the_reference_reaches() -> None:
    curves = tuned(0.5)
    rows = found(tuning_convergence_rows({"rte": curves}, "ltg"))
    lowest = min(1 - curve.losses[-1] for curve in curves["ltg"].values())
    assert rows["all", "rte", None, "score"].value == pytest.approx(lowest)
    assert not [key for key in rows if key[1] == "all"], "of one task there is nothing over tasks"


def test_what_never_reaches_it_is_a_bound_there_and_over_tasks() -> None:
    weak = {"ltg": tuned(1.0)["ltg"], "elc": tuned(1.0, best=0.6)["elc"]}
    rows = found(tuning_convergence_rows({"rte": weak, "mrpc": tuned(0.9)}, "ltg", 0.75))
    assert rows["elc", "rte", "steps", "censored"].value == 1.0
    for task in ("rte", "all"):
        bound = rows["elc - ltg", task, "steps", "ratio"]
        assert (bound.low, bound.high, bound.p) == (None, None, None)
    assert rows["elc - ltg", "mrpc", "steps", "ratio"].low is not None
