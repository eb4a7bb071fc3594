"""The rows of a run of growth: the null is asked what models are asked, and phases, steps and rates are told."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from layerwise.data.splits import Splits
from layerwise.data.text.language_modelling import TokenWindows
from layerwise.data.text.tokens import Window
from layerwise.errors import MeasureError
from layerwise.measure.language.bigram import BigramModel
from layerwise.plan.schedule import GrowthSchedule, ModelCost, Phase
from layerwise.results.rows import Score
from layerwise.results.training_record import LogEntry, TrainingRecord
from layerwise.train.phases.metrics import (
    accounting_rows,
    arm_rows,
    best_rate,
    held_out_row,
    last_validation,
    null_rows,
    phase_paces,
    point,
    rate_rows,
    schedule_rows,
    seconds_of_steps,
    step_pace,
)
from train.tiny_models import VOCABULARY, tiny_llama, tiny_text

HALVES = GrowthSchedule(
    "halves", 2, (Phase("top", 0.25, (1,), embedding=False, head=False), Phase("all", 0.75, (0, 1)))
)
HALVED = ModelCost((1.0, 1.0), embedding=0.0, head=1.0)


def test_tables_are_asked_for_the_very_tokens_that_models_are_asked_for(tmp_path: Path) -> None:
    splits = _worded()
    rows = {row.arm: row for row in null_rows(splits)}
    path = tmp_path / "model"
    tiny_llama().save_pretrained(path)
    model = held_out_row(path, splits, "cpu", arm="a", seed=0)
    for row in rows.values():
        assert (row.measure, row.documents, row.tokens) == ("null", model.documents, model.tokens)
    table = BigramModel.of([window.ids for window in splits.train.windows], [])  # nothing to select on: the same table
    asked = [
        (window.ids[at - 1], window.ids[at])
        for window in splits.test.windows
        for at in range(max(1, window.scored_from), window.scored_until)
    ]
    before, after = np.array(asked).T
    assert rows["token pairs"].value == pytest.approx(float(table.nll(before, after).mean()))
    assert rows["single tokens"].value == pytest.approx(float(table.single_nll(after).mean()))
    assert rows["token pairs"].low < rows["token pairs"].value < rows["token pairs"].high
    assert null_rows(tiny_text()) == [], "what is no text has no pairs of tokens"


def test_held_out_losses_have_tasks_as_strata() -> None:
    """Two tasks of which one repeats its tokens: their fixed mix is known better than a mix that could vary."""
    splits = _worded()
    windows = [
        Window(str(number), task, 0, (ids if task == "b" else tuple(range(number, number + 9))), 1, 9)
        for number in range(16)
        for task, ids in (("a", ()), ("b", (1,) * 9))
    ]
    both = null_rows(replace(splits, test=TokenWindows(windows)))[1]
    named = [replace(window, task="one", document=f"{window.task}{window.document}") for window in windows]
    pooled = null_rows(replace(splits, test=TokenWindows(named)))[1]
    assert both.value == pytest.approx(pooled.value)
    assert both.high - both.low < 0.9 * (pooled.high - pooled.low)


def _worded() -> Any:
    draw = np.random.default_rng(0)

    def window(document: str, index: int, size: int, first: int) -> Window:
        return Window(document, "text", index, tuple(draw.integers(VOCABULARY, size=size).tolist()), first, size)

    def cut(split: str, documents: int) -> TokenWindows:
        sizes = [(8, 4), (8, 1), (5, 1)]
        names = [f"{split}-{number}" for number in range(documents)]
        return TokenWindows([window(name, index, *size) for name in names for index, size in enumerate(sizes)])

    return Splits(
        "words", "digest", cut("train", 6), TokenWindows([Window("v", "text", 0, (1,), 0, 0)]), cut("test", 8)
    )


def test_schedules_are_told_part_by_part_as_shares_of_their_full_cost() -> None:
    rows = {
        (row.condition, row.amount, row.part if row.layer is None else row.layer): row.value
        for row in schedule_rows("halves", HALVES, steps=8)
    }
    third, two = pytest.approx(1 / 3), pytest.approx(2 / 3)
    assert rows == {
        ("top", 2, 0): third,
        ("top", 2, 1): 1.0,
        ("top", 2, "embedding"): third,
        ("top", 2, "head"): two,
        ("all", 8, 0): 1.0,
        ("all", 8, 1): 1.0,
        ("all", 8, "embedding"): 1.0,
        ("all", 8, "head"): 1.0,
    }


def test_steps_are_accounted_for_against_uniforms() -> None:
    rows = accounting_rows("halves", HALVES, 8, HALVED, {"top": 0.5}, uniform=0.8)
    assert {(row.condition, row.amount, row.metric): row.value for row in rows} == {
        ("top", 2, "predicted"): pytest.approx((1 + 3 + 2) / 9),
        ("top", 2, "measured"): 0.5 / 0.8,
        ("all", 8, "predicted"): 1.0,
    }


def pedigree(seed: int = 0, history: tuple[LogEntry, ...] = (), **figures: float) -> TrainingRecord:
    return TrainingRecord(
        "halves",
        seed,
        "base",
        "data",
        "text",
        {},
        steps=8,
        epochs=1.0,
        examples=64,
        seconds=9.0,
        best_step=8,
        history=history,
        figures=figures,
    )


def test_seconds_are_those_of_steps_by_their_median_over_trainings() -> None:
    timed: list[dict[str, float]] = [
        {"step_seconds top": 0.4, "step_seconds": 1.0},
        {"step_seconds top": 0.6, "step_seconds all": 1.0, "step_seconds": 3.0},
        {"step_seconds top": 9.0, "step_seconds": 2.0},
    ]
    trainings = [pedigree(seed, **figures) for seed, figures in enumerate(timed)]
    paces = phase_paces(trainings, HALVES)
    assert paces == {"top": 0.6, "all": 1.0}
    assert step_pace(trainings) == 2.0
    assert step_pace([pedigree()]) is None
    assert seconds_of_steps(HALVES, 8, paces, otherwise=7.0) == pytest.approx(2 * 0.6 + 6 * 1.0)
    assert seconds_of_steps(HALVES, 8, {}, otherwise=7.0) == pytest.approx(56.0)


def test_a_point_is_what_was_cost_in_uniform_steps() -> None:
    found = point(pedigree(tokens=512.0, flops=9e9), 3.5, seconds=7.2)
    assert (found.loss, found.costs) == (3.5, {"tokens": 512.0, "flops": 9e9, "seconds": 7.2})


def test_the_sweep_is_told_with_the_rate_that_was_chosen() -> None:
    rows = {
        (row.condition, row.amount, row.metric): row for row in rate_rows("uniform", {2e-3: (4.1, 3.9), 1e-3: (4.5,)})
    }
    assert {key: row.value for key, row in rows.items()} == {
        ("learning_rate", 1e-3, "nll"): 4.5,
        ("learning_rate", 2e-3, "nll"): 4.0,
        ("learning_rate", 2e-3, "chosen"): 1.0,
    }
    assert rows["learning_rate", 1e-3, "nll"].low is None, "one seed has no interval"
    assert rows["learning_rate", 2e-3, "nll"].low < 3.9
    assert best_rate({2e-3: 4.0, 1e-3: 4.0}) == 1e-3


def test_a_rate_is_judged_by_the_validation_at_the_end() -> None:
    history = (LogEntry(4, "validation", 5.0), LogEntry(8, "validation", 4.5), LogEntry(8, "train", 1.0))
    assert last_validation(pedigree(history=history)) == 4.5
    with pytest.raises(MeasureError, match="halves/0 was never validated"):
        last_validation(pedigree())


def test_arms_are_told_by_the_mean_over_their_seeds() -> None:
    def row(arm: str, seed: int, value: float) -> Score:
        return Score("held_out", "nll", value, value - 1, value + 1, documents=5, tokens=50, arm=arm, seed=seed)

    rows = [row("a", 0, 1.0), row("b", 0, 5.0), row("a", 1, 3.0)]
    mean, single = arm_rows([*rows, Score("held_out", "nll", 9.0, arm="a")])
    assert (mean.arm, mean.seed, mean.value, mean.documents) == ("a", None, 2.0, 5)
    assert mean.low == pytest.approx(2 - (12.7062**2 + 1) ** 0.5, abs=1e-3)  # over two seeds, and over documents
    assert (single.arm, single.value, single.low) == ("b", 5.0, 4.0)
