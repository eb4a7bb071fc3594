"""The rows of a growth run, looked up: arms apart from lengths of uniform, phases in order, nothing of other runs."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest

from layerwise.report import Evidence
from layerwise.report.growth.lookup import GrowthScores, PhaseSteps
from layerwise.report.kinds.pretraining import is_pretrained
from layerwise.results.rows import Score
from report import diagnosed, grown, pretrained, robust, synthetic
from report.grown import row


@pytest.fixture(scope="module")
def found() -> GrowthScores:
    return GrowthScores.of(grown.scores(12))


def test_arms_stand_in_reading_order_and_lengths_of_uniform_apart(found: GrowthScores) -> None:
    assert found.arms == ("uniform", "published", "importance", "permuted", "reversed", "random", "stacking", "ramp")
    assert found.lengths == ("uniform@0.75", "uniform@1.25", "uniform@1.5")
    assert found.seeds["importance"] == grown.SEEDS
    assert found.depth == 12


def test_lengths_are_sorted_as_numbers_and_not_as_text() -> None:
    rows = [row("held_out", f"uniform@{length}/0", "test", "nll", 4.0) for length in ("1.5", "0.8", "12")]
    assert GrowthScores.of(rows).lengths == ("uniform@0.8", "uniform@1.5", "uniform@12")


def test_phases_are_read_in_order_of_time(found: GrowthScores) -> None:
    phases = found.phases("published")
    assert [phase.name for phase in phases][:2] == ["gastrulation", "neurulation"]
    assert phases[0].first == 0
    assert all(before.end == after.first for before, after in pairwise(phases))
    assert found.shares("stacking", found.phases("stacking")[0])["11"] == 0.0
    assert found.shares("published", phases[0])["head"] == 1.0


def test_a_task_that_names_no_phase_is_none() -> None:
    rows = [row("accounting", "a", "all", "predicted", 1.0), row("accounting", "a", "10-20 the end", "predicted", 0.5)]
    assert GrowthScores.of(rows).phases("a") == (PhaseSteps(10, 20, "the end"),)


def test_losses_are_those_of_validation_and_else_of_training() -> None:
    rows = [
        row("schedule", "a", "0-20 all", "0", 1.0),
        *(row("training", "a/0", f"step {step}", "train_loss", 9.0) for step in (5, 10)),
        row("training", "a/0", "step 10", "validation_loss", 4.0),
        row("training", "b/0", "step 20", "train_loss", 8.0),
    ]
    found = GrowthScores.of(rows)
    assert found.losses("a/0") == {10: 4.0}
    assert found.losses("b/0") == {20: 8.0}
    assert found.losses("c/0") == {}


def test_the_row_of_an_arm_comes_before_the_mean_of_its_seeds() -> None:
    seeds = [row("held_out", f"a/{seed}", "test", "nll", value, 0.1) for seed, value in ((0, 4.0), (1, 5.0))]
    mean = GrowthScores.of(seeds).of_arm("held_out", "nll", "a", "test")
    assert mean is not None
    assert (mean.value, mean.low) == (4.5, None), "a mean made here has no interval"
    whole = GrowthScores.of([*seeds, row("held_out", "a", "test", "nll", 4.4, 0.1)]).of_arm(
        "held_out", "nll", "a", "test"
    )
    assert whole is not None
    assert whole.value == 4.4


def test_what_is_not_finite_was_not_measured() -> None:
    rows = [
        row("held_out", "a", "test", "nll", math.nan),
        Score("held_out", "b", "test", "nll", 4.0, low=math.nan, high=5.0),
    ]
    found = GrowthScores.of(rows)
    assert found.arms == ("b",)
    score = found.score("held_out", "nll", "b", "test")
    assert score is not None
    assert (score.low, score.high) == (None, None)


def test_a_sweep_alone_makes_no_arm_of_those_compared() -> None:
    rows = [row("rates", "tried", "0.1", "nll", 4.0), row("held_out", "a", "test", "nll", 4.0)]
    assert GrowthScores.of(rows).arms == ("a",)


def test_importance_is_by_layer_and_makes_no_arms() -> None:
    rows = [row("importance", layer, "all", "skip", float(layer)) for layer in ("10", "2")]
    found = GrowthScores.of([*rows, row("held_out", "a", "test", "nll", 4.0)])
    assert list(found.importance) == [2, 10]
    assert found.arms == ("a",)


def test_runs_of_other_kinds_are_no_growth_runs() -> None:
    for scores in (robust.scores(8), synthetic.run(6).scores, diagnosed.scores(6), pretrained.run().scores):
        assert GrowthScores.of(scores).measures == ()


def test_a_growth_run_is_neither_pretrained_nor_examined() -> None:
    evidence = Evidence.of(grown.run(6))
    assert not is_pretrained(evidence.data)
    assert evidence.growth.measures
