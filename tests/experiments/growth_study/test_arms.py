"""The study of growth: its arms and controls, budgets that are kept, lengths that reach, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from layerwise.errors import MeasureError, PlanError, TrainError
from layerwise.experiments.growth.budget import (
    check_epochs,
    check_initial_weights,
    cost_in_uniform_steps,
    recipe_of,
    steps_within,
)
from layerwise.experiments.growth.config import UNIFORM
from layerwise.experiments.growth_study.arms import (
    ARMS,
    CONTROLS,
    IMPORTANCE,
    PERMUTED,
    PUBLISHED,
    RANDOM,
    REVERSED,
    STACKING,
    TOLERANCE,
    beyond,
    exchanged,
    known,
    lengths,
    most_steps,
    of_importance,
    ordered_arms,
    permutation,
    rate_of,
    swept,
)
from layerwise.results.rows import Score
from layerwise.results.training_record import LogEntry, TrainingRecord
from layerwise.schedule import GrowthSchedule, ModelCost, Phase, preset, steps_for
from layerwise.schedule.allocation import Importance, allocate
from layerwise.train.phases import step_time
from layerwise.train.phases.metrics import (
    accounting_rows,
    arm_rows,
    best_rate,
    last_validation,
    phase_paces,
    point,
    rate_rows,
    schedule_rows,
    seconds_of_steps,
    step_pace,
)
from layerwise.train.recipe import Settings
from layerwise.train.training import Base
from tier import by_tier
from train.tiny_models import tiny_llama, tiny_text

DEPTH = 12
COST = ModelCost((1.0,) * DEPTH, embedding=0.0, head=2.0)
EFFECTS = (0.9, 0.02, 0.3, 0.3, 0.0, 0.1, 0.0, 0.05, 0.2, 0.0, 0.4, 0.6)


def by_importance(effects: tuple[float, ...] = EFFECTS) -> GrowthSchedule:
    return allocate([Importance(effect, effect - 0.001, effect + 0.001) for effect in effects])


# -- the arms


def test_the_arms_are_these_and_each_schedule_is_called_as_its_arm() -> None:
    schedules = {**known(DEPTH), **of_importance(by_importance(), seed=0)}
    assert set(schedules) == set(ARMS)
    assert all(schedule.name == arm and schedule.depth == DEPTH for arm, schedule in schedules.items())


@given(seed=st.integers(0, 1000))
def test_controls_have_the_phases_of_what_they_control_with_the_roles_exchanged(seed: int) -> None:
    found = of_importance(by_importance(), seed)
    own = found[IMPORTANCE].phases
    for control in CONTROLS:
        phases = found[control].phases
        assert [(phase.name, phase.share, len(phase.trains)) for phase in phases] == [
            (phase.name, phase.share, len(phase.trains)) for phase in own
        ]
        assert phases != own
    last = DEPTH - 1
    assert [phase.trains for phase in found[REVERSED].phases] == [
        tuple(sorted(last - layer for layer in phase.trains)) for phase in own
    ]
    # A permutation moves roles, so a layer that never learned is played by another; random freezing draws every phase.
    assert sorted(_parts(found[PERMUTED])) == sorted(_parts(found[IMPORTANCE]))
    assert 0 < exchanged(found[IMPORTANCE], found[PERMUTED]) <= DEPTH


def _parts(schedule: GrowthSchedule) -> list[int]:
    return [sum(layer in phase.trains for phase in schedule.phases) for layer in range(schedule.depth)]


def test_the_seed_decides_the_controls() -> None:
    one, again, other = (of_importance(by_importance(), seed) for seed in (0, 0, 1))
    assert one == again
    assert one[PERMUTED] != other[PERMUTED]
    assert one[RANDOM] != other[RANDOM]


@pytest.mark.parametrize("effects", [(0.5,) * 4, (0.5,)])
def test_where_every_layer_has_the_same_role_there_is_no_control(effects: tuple[float, ...]) -> None:
    schedule = by_importance(effects)
    assert permutation(schedule, seed=0) is None
    assert set(of_importance(schedule, seed=0)) == {IMPORTANCE}


@given(first=st.integers(0, 2), depth=st.integers(2, 5), seed=st.integers(0, 50))
def test_one_layer_that_differs_is_enough_for_a_control(first: int, depth: int, seed: int) -> None:
    effects = tuple(0.5 if layer == first % depth else 0.0 for layer in range(depth))
    schedule = by_importance(effects)
    order = permutation(schedule, seed)
    assert order is not None
    assert exchanged(schedule, schedule.permuted(order)) == 2


@given(seed=st.integers(0, 100), learn=st.sets(st.integers(0, DEPTH - 1), min_size=1, max_size=DEPTH // 2))
def test_no_layer_that_learns_keeps_its_role_where_as_many_others_can_take_it(seed: int, learn: set[int]) -> None:
    schedule = by_importance(tuple(0.5 if layer in learn else 0.0 for layer in range(DEPTH)))
    found = of_importance(schedule, seed)
    assert exchanged(found[IMPORTANCE], found[PERMUTED]) >= 2 * min(len(learn), 3)
    if len(learn) < 3:
        assert learn.isdisjoint(found[PERMUTED].phases[0].trains)


@given(seed=st.integers(0, 200))
def test_few_layers_are_not_drawn_as_they_were(seed: int) -> None:
    found = of_importance(by_importance((0.0, 0.4)), seed)
    assert found[RANDOM].phases != found[IMPORTANCE].phases


# -- budgets


@pytest.mark.slow
@settings(max_examples=by_tier(fast=5, full=20), deadline=None)
@given(seed=st.integers(0, 1000), budget=st.integers(100, 400), passes=st.integers(1, 2))
def test_a_ramp_keeps_its_budget_with_its_very_draws(seed: int, budget: int, passes: int) -> None:
    schedule = preset("ramp", DEPTH)
    steps = steps_within(schedule, COST, budget, seed, passes)
    assert abs(cost_in_uniform_steps(schedule, COST, steps, seed, passes) / budget - 1) < TOLERANCE


def test_the_mean_over_draws_would_not_have_kept_it() -> None:
    schedule, budget = preset("ramp", DEPTH), 100
    steps = steps_for(schedule, COST, budget)
    off = [abs(cost_in_uniform_steps(schedule, COST, steps, seed) / budget - 1) for seed in range(12)]
    assert max(off) > TOLERANCE


@pytest.mark.slow
@settings(max_examples=by_tier(fast=7, full=30), deadline=None)
@given(arm=st.sampled_from([PUBLISHED, IMPORTANCE, STACKING, RANDOM]), budget=st.integers(110, 2000))
def test_what_leaves_nothing_to_chance_keeps_it_too(arm: str, budget: int) -> None:
    schedule = {**known(DEPTH), **of_importance(by_importance(), 0)}[arm]
    steps = steps_within(schedule, COST, budget, seed=3)
    assert steps == steps_for(schedule, COST, budget)
    assert abs(cost_in_uniform_steps(schedule, COST, steps, seed=3) / budget - 1) < TOLERANCE


@settings(max_examples=by_tier(fast=12, full=50), deadline=None)
@given(
    effects=st.lists(st.floats(0.0, 1.0), min_size=4, max_size=4).filter(lambda each: max(each) > 0.02),
    head=st.floats(0.0, 9.0), budget=st.integers(20, 300),
)  # fmt: skip
def test_no_schedule_by_importance_takes_more_steps_than_were_reckoned_with(
    effects: list[float], head: float, budget: int
) -> None:
    cost = ModelCost((1.0,) * 4, embedding=0.0, head=head)
    assert steps_for(by_importance(tuple(effects)), cost, budget) <= most_steps(cost, budget)


@given(steps=st.lists(st.integers(100, 400), min_size=1, max_size=5))
def test_lengths_reach_from_below_the_budget_to_the_longest_arm(steps: list[int]) -> None:
    found = lengths(steps, budget=100)
    assert found[0] < 1
    assert 100 * found[-1] >= max(steps) - 1e-6
    assert 100 * found[-1] <= max(max(steps) + 5, 105) + 1e-6, "and no further than a grain"
    whole = sorted({*found, 1.0})
    assert all(later / earlier <= 2.01 for earlier, later in pairwise(whole))
    assert 1.0 not in found


def test_phased_arms_take_the_phased_rate_and_lengths_of_uniform_take_uniforms() -> None:
    chosen = {UNIFORM: 1.0, PUBLISHED: 2.0, IMPORTANCE: 3.0}
    rates = {arm: rate_of(arm, chosen) for arm in (*ARMS, "uniform@1.25")}
    assert (rates[UNIFORM], rates["uniform@1.25"], rates[PUBLISHED]) == (1.0, 1.0, 2.0)
    assert {rates[arm] for arm in ARMS if arm not in (UNIFORM, PUBLISHED)} == {3.0}
    del chosen[IMPORTANCE]
    assert rate_of(STACKING, chosen) == 2.0
    assert rate_of("ramp", {UNIFORM: 1.0, STACKING: 4.0}) == 4.0


@pytest.mark.parametrize(
    ("losses", "further"),
    [
        ({1e-3: 5.0, 2e-3: 4.0, 4e-3: 4.5}, None),
        ({1e-3: 5.0, 2e-3: 4.0, 4e-3: 3.0}, 8e-3),
        ({1e-3: 3.0, 2e-3: 4.0, 4e-3: 5.0}, 5e-4),
        ({6e-3: 5.0, 1.2e-2: 4.0}, 2.4e-2),  # the number that a user would write, not one that rounding left
        ({1e-3: 4.0, 2e-3: 4.0, 4e-3: 4.0}, 5e-4),  # of equal ones the lowest is chosen, so it is the end
        ({1e-3: 5.0}, None),
    ],
)
def test_a_sweep_goes_on_while_its_best_is_at_an_end(losses: dict[float, float], further: float | None) -> None:
    assert beyond(losses) == further


def test_both_sides_are_swept_whatever_arms_there_are() -> None:
    assert swept(ARMS) == (UNIFORM, PUBLISHED, IMPORTANCE)
    assert swept([UNIFORM, "ramp"]) == (UNIFORM, "ramp")


def test_a_recipe_is_called_as_its_arm_and_says_whether_weights_are_drawn_anew() -> None:
    recipe = recipe_of("mine", preset("freezing", DEPTH), Settings(), 40, COST, from_scratch=True)
    assert (recipe.arm, recipe.from_scratch, recipe.variant.NAME) == ("mine", True, "growth")
    assert recipe.growth is not None
    assert recipe.growth.steps == 40


# -- what is refused


def test_a_text_that_would_be_read_too_often_is_refused_with_figures() -> None:
    check_epochs(100, 8, windows=400, max_epochs=2.0, name="uniform")
    with pytest.raises(
        TrainError, match=r"uniform would read the text 2.02 times: 101 steps of 8 windows.*at most 100"
    ):
        check_epochs(101, 8, windows=400, max_epochs=2.0, name="uniform")
    with pytest.raises(TrainError, match=r"allow it with --max-epochs 2\.1"):
        check_epochs(101, 8, windows=400, max_epochs=2.0, name="uniform")
    check_epochs(101, 8, windows=400, max_epochs=2.1, name="uniform")


def test_arms_come_in_their_order_with_uniform_among_them() -> None:
    assert ordered_arms(["importance", "published", "permuted"]) == (UNIFORM, PUBLISHED, IMPORTANCE, PERMUTED)


@pytest.mark.parametrize(
    ("arms", "said"),
    [
        (["publisht"], "did you mean published"),
        (["published", "permuted"], "permuted is made from the schedule of importance"),
        (["uniform"], "uniform alone is no study"),
        ([], "uniform alone is no study"),
    ],
)
def test_arms_that_make_no_study_are_refused(arms: list[str], said: str) -> None:
    with pytest.raises(TrainError, match=said):
        ordered_arms(arms)


def test_layers_do_not_grow_in_over_trained_ones() -> None:
    check_initial_weights(preset(STACKING, DEPTH), pretrained=False)
    check_initial_weights(preset(PUBLISHED, DEPTH), pretrained=True)
    with pytest.raises(PlanError, match=r"in stacking layers grow in \(phase shallow\).*--from-scratch"):
        check_initial_weights(preset(STACKING, DEPTH), pretrained=True)


# -- rows

HALVES = GrowthSchedule(
    "halves", 2, (Phase("top", 0.25, (1,), embedding=False, head=False), Phase("all", 0.75, (0, 1)))
)
HALVED = ModelCost((1.0, 1.0), embedding=0.0, head=1.0)


def test_schedules_are_told_part_by_part_as_shares_of_their_full_cost() -> None:
    rows = {
        (row.condition, row.amount, row.part if row.layer is None else row.layer): row.value
        for row in schedule_rows("halves", HALVES, steps=8)
    }
    third, two = pytest.approx(1 / 3), pytest.approx(2 / 3)
    assert rows == {
        ("top", 2, 0): third, ("top", 2, 1): 1.0, ("top", 2, "embedding"): third, ("top", 2, "head"): two,
        ("all", 8, 0): 1.0, ("all", 8, 1): 1.0, ("all", 8, "embedding"): 1.0, ("all", 8, "head"): 1.0,
    }  # fmt: skip


def test_steps_are_accounted_for_against_uniforms() -> None:
    rows = accounting_rows("halves", HALVES, 8, HALVED, {"top": 0.5}, uniform=0.8)
    assert {(row.condition, row.amount, row.metric): row.value for row in rows} == {
        ("top", 2, "predicted"): pytest.approx((1 + 3 + 2) / 9),
        ("top", 2, "measured"): 0.5 / 0.8,
        ("all", 8, "predicted"): 1.0,
    }


def pedigree(seed: int = 0, history: tuple[LogEntry, ...] = (), **figures: float) -> TrainingRecord:
    return TrainingRecord(
        "halves", seed, "base", "data", "text", {}, steps=8, epochs=1.0, examples=64, seconds=9.0, best_step=8,
        history=history, figures=figures,
    )  # fmt: skip


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
        ("learning_rate", 1e-3, "nll"): 4.5, ("learning_rate", 2e-3, "nll"): 4.0,
        ("learning_rate", 2e-3, "chosen"): 1.0,
    }  # fmt: skip
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
        return Score(
            "held_out", "nll", value, value - 1, value + 1, documents=5, tokens=50, arm=arm, seed=seed
        )  # fmt: skip

    rows = [row("a", 0, 1.0), row("b", 0, 5.0), row("a", 1, 3.0)]
    mean, single = arm_rows([*rows, Score("held_out", "nll", 9.0, arm="a")])
    assert (mean.arm, mean.seed, mean.value, mean.documents) == ("a", None, 2.0, 5)
    assert mean.low == pytest.approx(2 - (12.7062**2 + 1) ** 0.5, abs=1e-3)  # over two seeds, and over documents
    assert (single.arm, single.value, single.low) == ("b", 5.0, 4.0)


# -- steps that are timed


def test_phases_are_timed_against_uniform_within_each_round(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine is twice as slow in every other round; the phase takes 0.7 of a uniform step in all of them."""
    schedule = GrowthSchedule("two", 3, (Phase("top", 0.5, (2,), embedding=False), Phase("all", 0.5, (0, 1, 2))))

    def seconds(self: Any, grows: Any, step: int, number: int) -> float:
        return (0.7 if grows.step_schedule.phase(step).name == "top" else 1.0) * (1 + number % 2)

    monkeypatch.setattr(step_time._TimedTraining, "seconds", seconds)
    assert _slowness(schedule) == pytest.approx((0.7, 1.0))


def test_timing_runs_every_phase_and_changes_no_weight() -> None:
    schedule = replace(preset("published", 3), phases=preset("published", 3).phases)
    opened: list[Any] = []

    def opener() -> Any:
        from layerwise.stack import load

        opened.append(load(tiny_llama()))
        return opened[-1]

    found = _slowness(schedule, Base(opener, "x"))
    assert len(found) == len(schedule.phases)
    assert min(found) > 0
    fresh = tiny_llama().state_dict()
    assert all(weight.equal(fresh[name]) for name, weight in opened[0].model.state_dict().items())


def test_states_on_disk_cannot_be_timed_by_a_few_steps() -> None:
    schedule = GrowthSchedule(
        "kept", 3, (Phase("all", 0.5, (0, 1, 2)), Phase("top", 0.5, (2,), embedding=False, cached=True))
    )
    with pytest.raises(TrainError, match="give --match flops or --match tokens"):
        _slowness(schedule)


def _slowness(schedule: GrowthSchedule, base: Base | None = None) -> tuple[float, ...]:
    from layerwise.stack import load

    cost = ModelCost((1.0,) * 3, embedding=0.0, head=1.0)
    chosen = base or Base(lambda: load(tiny_llama()), "x")
    return step_time.relative_step_times(
        chosen, tiny_text(), schedule, 40, cost, Settings(batch_size=8, gradient_accumulation_steps=2)
    )
