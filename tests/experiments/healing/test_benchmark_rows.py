"""Benchmarks of a healing from planted answers: shares, paired differences, the control of each seed, guessing."""

from collections.abc import Sequence

import numpy as np
import pytest

from layerwise.experiments.healing.arms import HealingArm
from layerwise.experiments.healing.rows import Trainings, benchmark_rows
from layerwise.measure.interventions.accuracy import Predictions
from layerwise.measure.interventions.survey import Survey
from layerwise.measure.stats.statistics import paired_proportions, wilson
from layerwise.plan import Plan
from layerwise.results.rows import Score
from layerwise.train.heal.options import HealingOptions

QUESTIONS = 40
ARMS = tuple(HealingArm(name, HealingOptions(), name) for name in ("lora", "whole", "random", "skip-1"))


def answered(right: int, first: int = 0) -> Survey:
    hits = np.zeros(QUESTIONS)
    hits[first : first + right] = 1.0
    return Survey(6, {"quiz": Predictions(hits, None, np.zeros_like(hits), np.ones_like(hits))})


def rows_of(seeds: int = 2, **right: Survey) -> list[Score]:
    trainings = Trainings(Plan.parse("0-1 4-5"), 6, ARMS, seeds, {}, {})
    surveys = {
        "untouched": answered(30),
        "pruned": answered(10),
        "skip-1 before": answered(20),
        **{f"random before/{seed}": answered(5) for seed in range(seeds)},
        **{f"{arm.name}/{seed}": answered(25 + seed) for arm in ARMS for seed in range(seeds)},
        **{name.replace("_", "/"): survey for name, survey in right.items()},
    }
    return list(benchmark_rows(trainings, surveys, {"quiz": 0.25}))


def one(rows: Sequence[Score], **columns: object) -> Score:
    (row,) = (
        row for row in rows if all(getattr(row, name) == value for name, value in {"seed": None, **columns}.items())
    )
    return row


def test_shares_and_paired_differences_are_those_of_the_questions() -> None:
    rows = rows_of()
    assert one(rows, against="chance").value == 0.25
    assert one(rows, metric="accuracy", arm="untouched").value == pytest.approx(30 / 40)
    pruned = one(rows, metric="difference", arm="pruned", against="untouched")
    expected = paired_proportions(0, 20, QUESTIONS)
    assert (pruned.value, pruned.low, pruned.high) == pytest.approx((-0.5, float(expected.low), float(expected.high)))
    assert one(rows, metric="accuracy", arm="lora", seed=1).low == pytest.approx(float(wilson(26, QUESTIONS).low))
    assert one(rows, metric="accuracy", arm="lora").value == pytest.approx(25.5 / 40)
    assert one(rows, metric="difference", arm="lora", against="untouched").value == pytest.approx(-4.5 / 40)


def test_the_control_is_the_whole_model_of_the_same_seed() -> None:
    """The arms answer different questions: accuracy alone would not tell them apart, but exchanged seeds would."""
    rows = rows_of(whole_0=answered(25), whole_1=answered(26, first=2))
    beside = one(rows, metric="difference", arm="lora", against="whole")
    assert beside.value == pytest.approx(0.0)
    swapped = rows_of(whole_0=answered(30), whole_1=answered(26), lora_0=answered(20), lora_1=answered(26))
    row = one(swapped, metric="difference", arm="lora", against="whole")
    assert row.value == pytest.approx(-5 / 40)
    assert not [row for row in rows if row.arm == "whole" and row.against == "whole"]


def test_windows_have_the_number_of_layers_before_and_after() -> None:
    rows = rows_of()
    before = one(rows, metric="accuracy", arm="skip-1", condition="before")
    after = one(rows, metric="accuracy", arm="skip-1", condition="healed")
    assert (before.amount, after.amount) == (1, 1)
    assert before.value == pytest.approx(0.5)
    assert one(rows, metric="difference", arm="skip-1", condition="before").value == pytest.approx(-0.25)


def test_questions_alone_have_an_interval_where_there_is_one_seed() -> None:
    row = one(rows_of(seeds=1), metric="difference", arm="lora", against="whole")
    assert row.low < 0 < row.high
