"""Steps to a score: planted ratios over tasks, trainings that never reach it, and the score of one's own."""

from __future__ import annotations

import numpy as np
import pytest

from layerwise.results.rows import Score
from layerwise.train.cost.convergence import Curves, score_curve, tuning_convergence_rows
from row_names import named

STEPS = tuple(int(step) for step in np.unique(np.geomspace(1, 300, 12).round()))


def tuned(ratio: float, run: int = 0, best: float = 0.8) -> Curves:
    """Accuracies that rise from .5 to `best`; the arm takes `ratio` times as many steps as the backbone to any."""
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
    rows = found(tuning_convergence_rows({"rte": weak, "mrpc": tuned(0.9)}, "ltg"))
    assert rows["elc", "rte", "steps", "censored"].value == 1.0
    for task in ("rte", "all"):
        bound = rows["elc - ltg", task, "steps", "ratio"]
        assert (bound.low, bound.high, bound.p) == (None, None, None)
    assert rows["elc - ltg", "mrpc", "steps", "ratio"].low is not None


def test_without_a_reference_nothing_is_compared() -> None:
    assert tuning_convergence_rows({"rte": {"elc": tuned(1.0)["elc"]}}, "ltg") == []
