"""Rows of a growth run: held-out losses, token tables, costs and times of phases, and savings."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from layerwise.data.splits import Splits
from layerwise.data.text.language_modeling import TokenWindows
from layerwise.data.text.tokens import Window
from layerwise.measure.language.bigram import BigramModel
from layerwise.plan.schedule import GrowthSchedule, ModelCost, Phase
from layerwise.results.training_record import LogEntry, TrainingRecord
from layerwise.studies.train_growth.held_out import make_held_out_row, make_null_rows
from layerwise.studies.train_growth.rows import (
    FinishedVariant,
    compare_variants,
    make_accounting_rows,
    make_schedule_rows,
)
from layerwise.train.cost.frontier import CostPoint
from train.tiny_models import VOCABULARY, tiny_llama

HALVES = GrowthSchedule(
    "halves", 2, (Phase("top", 0.25, (1,), embedding=False, head=False), Phase("all", 0.75, (0, 1)))
)
UNIFORM = GrowthSchedule("uniform", 2, (Phase("all", 1.0, (0, 1)),))
HALVED = ModelCost((1.0, 1.0), embedding=0.0, head=1.0)


def test_tables_predict_the_same_tokens_as_models(tmp_path: Path) -> None:
    splits = _worded()
    rows = {row.variant: row for row in make_null_rows(splits)}
    path = tmp_path / "model"
    tiny_llama().save_pretrained(path)
    model = make_held_out_row(path, splits, "cpu", variant="a", seed=0)
    for row in rows.values():
        assert (row.measure, row.documents, row.tokens) == ("null", model.documents, model.tokens)
    table = BigramModel.fit([window.ids for window in splits.train.windows], [])  # nothing to select on: the same table
    asked = [
        (window.ids[at - 1], window.ids[at])
        for window in splits.test.windows
        for at in range(max(1, window.scored_from), window.scored_until)
    ]
    before, after = np.array(asked).T
    assert rows["bigrams"].value == pytest.approx(float(table.nll(before, after).mean()))
    assert rows["unigrams"].value == pytest.approx(float(table.single_nll(after).mean()))
    assert rows["bigrams"].low < rows["bigrams"].value < rows["bigrams"].high


def test_held_out_losses_have_tasks_as_strata() -> None:
    """A fixed mix of two tasks has a smaller error than a variable one."""
    splits = _worded()
    windows = [
        Window(str(number), task, 0, (ids if task == "b" else tuple(range(number, number + 9))), 1, 9)
        for number in range(16)
        for task, ids in (("a", ()), ("b", (1,) * 9))
    ]
    both = make_null_rows(replace(splits, test=TokenWindows(windows)))[1]
    named = [replace(window, task="one", document=f"{window.task}{window.document}") for window in windows]
    pooled = make_null_rows(replace(splits, test=TokenWindows(named)))[1]
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


def finished(*figures: Mapping[str, float], name: str = "halves", schedule: GrowthSchedule = HALVES) -> FinishedVariant:
    history = (LogEntry(2, "validation", 5.0), LogEntry(8, "validation", 4.0), LogEntry(8, "train", 1.0))
    records = {
        seed: TrainingRecord(name, seed, "base", "data", "text", {}, 8, 1.0, 64, 9.0, 8, history, own)
        for seed, own in enumerate(figures)
    }
    return FinishedVariant(name, schedule, records)


def test_costs_of_phases_are_shares_of_uniform_training() -> None:
    variant = finished({"step_seconds top": 0.5})
    rows = {
        (row.phase, row.step, row.part if row.layer is None else row.layer): row.value
        for row in make_schedule_rows(variant)
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
    accounted = make_accounting_rows(variant, HALVED, uniform=0.8)
    assert {(row.phase, row.step, row.metric): row.value for row in accounted} == {
        ("top", 2, "predicted"): pytest.approx((1 + 3 + 2) / 9),
        ("top", 2, "measured"): 0.5 / 0.8,
        ("all", 8, "predicted"): 1.0,
    }


def test_seconds_per_step_are_medians_over_trainings() -> None:
    variant = finished(
        {"step_seconds top": 0.4, "step_seconds": 1.0},
        {"step_seconds top": 0.6, "step_seconds all": 1.0, "step_seconds": 3.0},
        {"step_seconds top": 9.0, "step_seconds": 2.0},
    )
    phases = variant.phase_seconds()
    assert phases == {"top": 0.6, "all": 1.0}
    assert (variant.seconds_per_step(), variant.seconds_per_step(1), finished({}).seconds_per_step()) == (
        2.0,
        3.0,
        None,
    )
    assert variant.seconds(8, 8, phases, otherwise=7.0) == pytest.approx(2 * 0.6 + 6 * 1.0)
    assert variant.seconds(8, 4, {}, otherwise=7.0) == pytest.approx(28.0)


def test_savings_come_from_training_curves() -> None:
    figures: dict[str, Any] = {"tokens": 512.0, "flops": 9e9}
    variants = {
        "uniform": finished(*[figures | {"step_seconds": 1.0}] * 2, name="uniform", schedule=UNIFORM),
        "halves": finished(*[figures | {"step_seconds": 0.5, "step_seconds top": 0.25}] * 2),
    }
    costs = {"tokens": 512.0, "flops": 9e9, "seconds": 8.0}
    ends = {name: dict.fromkeys((0, 1), CostPoint(4.0, costs)) for name in variants}
    rows, notes = compare_variants(variants, ends, HALVED)
    found = {(row.metric, row.unit): row.value for row in rows}
    assert not notes
    assert found["saving", "flops"] == pytest.approx(0.0), "both courses end at the same loss and cost"
    assert found["saving", "seconds"] == pytest.approx(1 - (2 * 0.25 + 6 * 0.5) / 8)
    assert found["time_saved", "tokens"] == pytest.approx(1 - (2 * 0.25 + 6 * 0.5) / 8)
    assert found["loss_ratio", "tokens"] == pytest.approx(1.0)
    assert compare_variants({"halves": variants["halves"]}, ends, HALVED) == ([], [])
