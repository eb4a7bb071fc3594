"""The timetable of phases, the time of their steps, and the rows of a run of growth."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import get_scheduler

from drawn_schedules import schedules
from layerwise.data.splits import Splits
from layerwise.data.text.language_modelling import TokenWindows
from layerwise.data.text.tokens import Window
from layerwise.errors import MeasureError
from layerwise.measure.language.bigram import BigramModel
from layerwise.plan.schedule import GrowthSchedule, ModelCost, Phase
from layerwise.plan.schedule.cost import flops_per_token
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
from layerwise.train.phases.step_schedule import StepSchedule
from tier import first_fast
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
    rows = {(row.condition, row.amount, row.metric): row for row in rate_rows("uniform", {2e-3: 4.0, 1e-3: 4.5})}
    assert {key: row.value for key, row in rows.items()} == {
        ("learning_rate", 1e-3, "nll"): 4.5,
        ("learning_rate", 2e-3, "nll"): 4.0,
        ("learning_rate", 2e-3, "chosen"): 1.0,
    }
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


DEPTH = 6
EVERY = tuple(range(DEPTH))
COST = ModelCost(tuple(float(layer + 1) for layer in EVERY), embedding=2.0, head=3.0)


def table(*phases: Phase, steps: int = 30, seed: int = 0) -> StepSchedule:
    return StepSchedule(GrowthSchedule("any", DEPTH, phases), steps, seed)


def last(**fields: object) -> Phase:
    return Phase("last", 1.0, EVERY, **fields)  # type: ignore[arg-type]


@given(schedules(), st.integers(0, 3), st.data())
def test_what_a_pass_runs_is_settled_by_its_index(schedule: GrowthSchedule, seed: int, data: st.DataObject) -> None:
    found, again = (StepSchedule(schedule, steps=200, seed=seed) for _ in range(2))
    step, number = data.draw(st.integers(0, 199)), data.draw(st.integers(0, 3))
    again.resolve(data.draw(st.integers(0, 199)))
    settled, phase = found.resolve(step, number), found.phase(step)
    assert settled == again.resolve(step, number)
    running = settled.running(schedule.depth)
    assert running
    assert set(running) <= set(phase.running(schedule.depth))
    assert set(settled.trains) <= set(phase.trains) & set(running)
    assert settled.trains or settled.embedding or settled.head
    assert settled.sample is None
    assert settled.drop == (0.0, 0.0)
    if phase.sample is None and phase.drop == (0.0, 0.0):
        assert (running, settled.trains) == (phase.running(schedule.depth), phase.trains)


@given(schedules(), st.integers(40, 300))
def test_every_phase_begins_and_ends_once(schedule: GrowthSchedule, steps: int) -> None:
    found = StepSchedule(schedule, steps, seed=0)
    assert [step for step in range(steps) if found.begins(step)] == [first for first, _ in schedule.bounds(steps)]
    assert [step + 1 for step in range(steps) if found.ends(step)] == [end for _, end in schedule.bounds(steps)]
    assert [found.number(step) for step in range(steps)] == [
        number for number, (first, end) in enumerate(schedule.bounds(steps)) for _ in range(first, end)
    ]


def test_sampled_layers_are_drawn_anew_every_so_many_steps() -> None:
    found = table(Phase("first", 1 / 3, (0, 5)), Phase("drawn", 2 / 3, EVERY, sample=2, every=4))
    drawn = [found.learning(step) for step in range(30)]
    assert drawn[:10] == [(0, 5)] * 10
    blocks = [drawn[start : start + 4] for start in range(10, 30, 4)]
    assert all(set(block) == {block[0]} for block in blocks)
    assert len({block[0] for block in blocks}) > 2
    assert all(len(layers) == 2 for layers in drawn)
    other = table(Phase("first", 1 / 3, (0, 5)), Phase("drawn", 2 / 3, EVERY, sample=2, every=4), seed=1)
    assert drawn != [other.learning(step) for step in range(30)]


def test_passes_of_a_step_drop_layers_each_by_its_own_draw() -> None:
    found = table(last(drop=(0.5, 0.5)))
    assert len({found.resolve(7, number) for number in range(20)}) > 5


def test_what_is_dropped_goes_in_a_line_from_the_first_step_to_the_last() -> None:
    found = table(last(drop=(0.0, 0.9)), steps=4000)
    counts = [len(found.resolve(step).running(DEPTH)) for step in range(4000)]
    assert counts[0] == DEPTH
    mean_share = fmean((index + 1) / DEPTH for index in range(DEPTH))
    for first in range(0, 4000, 1000):
        expected = DEPTH * (1 - 0.9 * (first + 499.5) / 3999 * mean_share)
        assert fmean(counts[first : first + 1000]) == pytest.approx(expected, rel=0.02)


@pytest.mark.parametrize(
    "phase",
    first_fast(
        [last(sample=2), last(drop=(0.0, 0.8)), last(drop=(0.6, 0.2)), Phase("last", 1.0, (2, 4), drop=(0.5, 0.5))], 2
    ),
)
def test_the_draws_cost_on_average_what_the_phase_is_said_to_cost(phase: Phase) -> None:
    found = table(phase, steps=6000)
    realised = fmean(flops_per_token(found.resolve(step), COST) for step in range(6000))
    assert realised == pytest.approx(flops_per_token(phase, COST), rel=0.01)


def test_a_pass_in_which_nothing_would_learn_is_drawn_again() -> None:
    found = table(Phase("one", 0.5, (5,), embedding=False, head=False, drop=(0.99, 0.99)), Phase("all", 0.5, EVERY))
    assert all(5 in found.resolve(step).trains for step in range(15))


def curve_of(kind: str, steps: int, warmup: int) -> Callable[[int], float]:
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(()))], lr=1.0)
    found = get_scheduler(kind, optimizer, num_warmup_steps=warmup, num_training_steps=steps)
    return found.lr_lambdas[0]  # type: ignore[no-any-return, attr-defined]


@pytest.mark.parametrize("kind", ["linear", "cosine", "constant_with_warmup"])
def test_a_curve_of_a_phase_is_transformers_own_over_the_steps_of_the_phase(kind: str) -> None:
    shape = kind.removesuffix("_with_warmup")
    found = table(
        Phase("first", 1 / 3, EVERY, shape=shape, warmup=0.3, rate=0.5),  # type: ignore[arg-type]
        Phase("second", 2 / 3, EVERY, shape=shape),  # type: ignore[arg-type]
    )
    factors = [found.factor(step, curve=lambda step: 7.0) for step in range(31)]
    first, second = curve_of(kind, 10, 3), curve_of(kind, 20, 0)
    assert factors[:10] == pytest.approx([0.5 * first(step) for step in range(10)])
    assert factors[10:] == pytest.approx([second(step) for step in range(21)])
    assert factors[0] == 0.0
    assert factors[30] == pytest.approx(1.0 if shape == "constant" else 0.0)


def test_the_shape_run_is_the_curve_of_the_training_to_the_bit() -> None:
    curve = curve_of("cosine", 30, 4)
    found = table(Phase("first", 1 / 3, EVERY), Phase("second", 2 / 3, EVERY, rate=0.1))
    factors = [found.factor(step, curve) for step in range(31)]
    assert factors == [curve(step) * (1.0 if step < 10 else 0.1) for step in range(31)]


def test_a_warm_up_of_the_whole_phase_leaves_its_last_step_at_the_full_rate() -> None:
    found = table(last(shape="linear", warmup=0.99))
    assert found.factor(29, curve=lambda step: 0.0) == 1.0
    assert found.factor(30, curve=lambda step: 0.0) == 0.0
