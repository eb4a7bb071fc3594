"""Schedules: their phases, steps and presets."""

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drawn_schedules import schedules
from layerwise.errors import PlanError
from layerwise.plan.schedule import GrowthSchedule, Phase
from layerwise.plan.schedule.presets import (
    MIN_LAYERS,
    PRESETS,
    ROLES,
    freezing,
    preset,
    published,
    published_roles,
    random_freezing,
    stacking,
)
from layerwise.plan.schedule.schedule import apportion

ALL = tuple(range(6))


def one(**fields: Any) -> GrowthSchedule:
    first: dict[str, Any] = {"name": "first", "share": 0.5, "trains": ALL, **fields}
    return GrowthSchedule("of two", 6, (Phase(**first), Phase("second", 0.5, ALL)))


@given(shares=st.lists(st.floats(1e-3, 1), min_size=1, max_size=8), steps=st.integers(0, 10**7))
def test_apportioned_steps_sum_to_all_and_are_within_one_of_their_share(shares: list[float], steps: int) -> None:
    counts = apportion(shares, steps)
    assert sum(counts) == steps
    for share, count in zip(shares, counts, strict=True):
        assert abs(count - share * steps / math.fsum(shares)) < 1 + 1e-6


@given(schedule=schedules(), steps=st.integers(200, 10**6))
def test_bounds_partition_the_steps(schedule: GrowthSchedule, steps: int) -> None:
    bounds = schedule.bounds(steps)
    assert bounds[0][0] == 0
    assert bounds[-1][1] == steps
    assert all(end == first for (_, end), (first, _) in pairwise(bounds))
    for phase, (first, end) in zip(schedule.phases, bounds, strict=True):
        assert first < end
        assert abs(end - first - phase.share * steps) < 1 + 1e-6


@pytest.mark.parametrize(
    ("share", "steps", "bounds"), [(1 / 3, 8, ((0, 3), (3, 6), (6, 8))), (0.3333333, 9, ((0, 3), (3, 6), (6, 9)))]
)
def test_thirds_may_be_rounded(share: float, steps: int, bounds: tuple[tuple[int, int], ...]) -> None:
    thirds = tuple(Phase(name, share, (0,)) for name in "abc")
    assert GrowthSchedule("thirds", 1, thirds).bounds(steps) == bounds


@given(schedule=schedules(), depth=st.integers(1, 12))
def test_a_schedule_is_for_one_depth(schedule: GrowthSchedule, depth: int) -> None:
    if depth == schedule.depth:
        schedule.check(depth)
        return
    with pytest.raises(PlanError, match=rf"drawn is for a model of {schedule.depth} layers?, but this one has {depth}"):
        schedule.check(depth)


@given(schedule=schedules(), data=st.data())
def test_trained_layers_are_never_in_the_frozen_prefix(schedule: GrowthSchedule, data: st.DataObject) -> None:
    phase = data.draw(st.sampled_from(schedule.phases))
    running, prefix = phase.running(schedule.depth), phase.prefix(schedule.depth)
    assert prefix == running[: len(prefix)]
    assert not set(prefix) & set(phase.trains)
    rest = running[len(prefix) :]
    assert phase.embedding or not rest or rest[0] in phase.trains


def test_the_chance_of_being_dropped_rises_in_time_and_in_depth() -> None:
    phase = Phase("late", 1, (0,), drop=(0.1, 0.5), present=(0, 2, 3, 5))
    assert phase.dropped(0.0, depth=6) == pytest.approx((0.025, 0.05, 0.075, 0.1))
    assert phase.dropped(0.5, depth=6) == pytest.approx((0.075, 0.15, 0.225, 0.3))
    assert phase.dropped(1.0, depth=6) == pytest.approx((0.125, 0.25, 0.375, 0.5))


@given(schedule=schedules(growing=False), data=st.data())
def test_an_order_and_its_inverse_give_the_schedule_back(schedule: GrowthSchedule, data: st.DataObject) -> None:
    order = data.draw(st.permutations(range(schedule.depth)))
    inverse = sorted(range(schedule.depth), key=order.__getitem__)
    assert schedule.permuted(order).permuted(inverse) == schedule
    assert schedule.reversed().reversed() == schedule


def test_layer_l_plays_what_the_order_says() -> None:
    schedule = one(trains=(0, 1), redraw=(1,), scale=((0, 0.5), (1, 0.9)))
    played = schedule.permuted((5, 0, 2, 1, 3, 4)).phases[0]
    assert played.trains == (1, 3)
    assert played.redraw == (3,)
    assert played.scale == ((1, 0.5), (3, 0.9))
    assert schedule.reversed().phases[0].trains == (4, 5)


def test_warnings_and_refusals_name_the_phase() -> None:
    never = GrowthSchedule("odd", 6, (Phase("a", 0.5, (0,), redraw=(0, 3, 4)), Phase("b", 0.5, (4,), redraw=(2, 4))))
    warned = never.warnings()
    assert [f"layer {layer} " in line for line, layer in zip(warned, (3, 2), strict=True)] == [True, True]
    assert warned[0].startswith("phase a ")
    assert warned[1].startswith("phase b ")

    schedule = GrowthSchedule("uneven", 1, (Phase("short", 0.01, (0,)), Phase("long", 0.99, (0,))))
    with pytest.raises(PlanError, match=r"phase short: a share of 0.01 is less than one of 20 steps; .* 100 steps"):
        schedule.bounds(20)
    assert schedule.bounds(100)[0] == (0, 1)


@given(schedule=schedules())
def test_schedules_that_train_everything_at_the_end_warn_of_nothing(schedule: GrowthSchedule) -> None:
    last = replace(schedule.phases[-1], trains=tuple(range(schedule.depth)), embedding=True, sample=None, every=1)
    assert not GrowthSchedule("whole", schedule.depth, (*schedule.phases[:-1], last)).warnings()


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"share": 0.25}, "the shares of the phases must sum to 1"),
    ({"share": 0.0}, r"phase first: share must be in \(0, 1\]"),
    ({"share": math.nan}, r"phase first: share must be in \(0, 1\]"),
    ({"trains": (4, 6)}, "phase first: trains lists layer 6, but the schedule is for 6 layers"),
    ({"trains": (4, 4)}, "phase first: trains must be ascending without duplicates"),
    ({"trains": (5, 4)}, "phase first: trains .* ascending"),
    ({"trains": [4]}, r"phase first: trains must be a tuple of layer numbers such as \(4, 5\)"),
    ({"trains": (), "embedding": False, "head": False}, "phase first: a phase must train something"),
    ({"trains": (1,), "present": (0, 2)}, "phase first: trains lists layer 1, which does not run in this phase"),
    ({"trains": (), "present": ()}, "phase first: present must not be empty"),
    ({"trains": (0,), "present": (0, 7)}, "phase first: present lists layer 7, but the schedule is for 6 layers"),
    ({"trains": (0,), "present": (0,), "redraw": (1,)}, "redraw lists layer 1, which does not run in this phase"),
    ({"trains": (0,), "present": (0,), "scale": ((1, 0.5),)}, "scale lists layer 1, which does not run in this phase"),
    ({"redraw": (9,)}, "phase first: redraw lists layer 9, but the schedule is for 6 layers"),
    ({"scale": ((1, 0.5), (1, 0.6))}, "phase first: scale must be ascending without duplicates"),
    ({"scale": ((1, math.inf),)}, "phase first: the scale of layer 1 must be a finite number"),
    ({"scale": (1, 0.5)}, r"phase first: scale must be a tuple of pairs such as \(7, 0\.9\)"),
    ({"copies": ((1, 0),)}, "phase first: layer 1 copies layer 0, which has not run in an earlier"),
    ({"copies": ((1, 1),)}, "phase first: layer 1 must copy another layer"),
    ({"copies": ((1, 0),), "redraw": (1,)}, "phase first: layer 1 is both copied into and redrawn"),
    ({"name": "second"}, "phase names must be unique"),
    ({"name": "a/b"}, "the name of a phase must be at most 40 letters, digits, spaces and"),
    ({"rate": 0}, "phase first: rate must be a positive factor of the learning rate"),
    ({"rate": "1e-1"}, "phase first: rate must be a positive factor of the learning rate"),
    ({"shape": "cosin"}, r"phase first: unknown shape 'cosin' \(str\)"),
    ({"optimizer": "forget"}, r"phase first: unknown optimizer 'forget' \(str\)"),
    ({"warmup": 0.1}, "phase first: warmup must be 0 with shape: run, which has the"),
    ({"warmup": 1.0, "shape": "linear"}, r"phase first: warmup must be in \[0, 1\), a share of the phase's steps"),
    ({"embedding": 1}, "phase first: embedding must be true or false"),
    ({"sample": 7}, "phase first: sample must be from 1 to 6, the number of layers under"),
    ({"every": 5}, "phase first: every requires sample"),
    ({"sample": 2, "every": 0}, "phase first: every must be a number of steps of at least 1"),
    ({"drop": (0.0, 1.0)}, r"phase first: drop must be two probabilities in \[0, 1\), for the first"),
]


def of(*phases: Phase, name: str = "odd", depth: Any = 6) -> GrowthSchedule:
    return GrowthSchedule(name, depth, phases)


CALLS: list[tuple[Callable[[], object], str]] = [
    *((partial(one, **fields), message) for fields, message in REFUSED),
    *(
        (lambda steps=steps: one().bounds(steps), "steps must be an integer of at least 1")
        for steps in (0, -1, 2.0, True)
    ),  # type: ignore[misc]
    *(
        (lambda order=order: one().permuted(order), "order must be a permutation of the layers 0 to 5")  # type: ignore[misc]
        for order in ((0, 1, 2), (0, 0, 1, 2, 3, 4), (1, 2, 3, 4, 5, 6))
    ),
    (
        lambda: one(trains=(0, 1), present=(0, 1)).reversed(),
        "phase first: the phase adds layers, so the layers of of two cannot exchange",
    ),
    (
        lambda: of(Phase("first", 0.5, ALL), Phase("second", 0.5, (0,), present=(0, 1, 2))),
        "phase second: layer 3 does not run in the last phase",
    ),
    *(
        (
            lambda depth=depth: of(Phase("a", 1, ()), depth=depth),
            "depth must be an integer number of layers from 1 to 10000",
        )  # type: ignore[misc]
        for depth in (0, 2.0, 10**9)
    ),
    (of, "a schedule's phases must not be empty"),
    (lambda: of(Phase("a", 1, ()), name=""), "the name of a schedule must be text such as published"),
]


@pytest.mark.parametrize(("call", "message"), CALLS, ids=[message for _, message in CALLS])
def test_impossible_schedules_are_refused(call: Callable[[], object], message: str) -> None:
    with pytest.raises(PlanError, match=message):
        call()


@given(name=st.sampled_from(sorted(PRESETS)), depth=st.integers(2, 100))
def test_every_preset_fits_every_depth(name: str, depth: int) -> None:
    made = PRESETS[name](depth)
    made.check(depth)
    assert made.name == name
    assert not made.warnings()
    assert GrowthSchedule.from_json(made.to_json()) == made
    trained = {layer for phase in made.phases for layer in phase.trains}
    assert trained == set(range(depth)), "no layer is forgotten"


def test_the_six_published_phases_of_twelve_layers() -> None:
    phases = {phase.name: phase for phase in published(12).phases}
    known = {"gastrulation": (4, 5), "neurulation": (1, 2), "organogenesis": (8, 9), "growth": (7, 8, 9, 10)}
    assert list(phases) == [*known, "connective", "maturation"]
    assert {name: phases[name].trains for name in known} == known
    assert phases["maturation"].trains == tuple(range(12))
    # Published epochs: 30, 20, 20 and, at the end, 15.
    unit = phases["gastrulation"].share / 30
    assert [phases[name].share / unit for name in ("neurulation", "organogenesis")] == pytest.approx([20, 20])
    assert phases["maturation"].share / unit == pytest.approx(15)
    assert not any(11 in phase.trains for phase in published(12).phases[:5])
    anti = phases["connective"]
    assert anti.redraw == (6,)
    assert anti.scale == ((6, 0.9),)
    assert all(phase.embedding and phase.head for phase in phases.values())


def test_of_thirty_layers_the_places_of_the_text_are_kept() -> None:
    """The critical core, 8 to 11, learns first; the anti-layers 14 and 17 learn only in the last phase."""
    phases = published(30).phases
    assert phases[0].trains == (8, 9, 10, 11)
    assert not {14, 17} & {layer for phase in phases[:-1] for layer in phase.trains}
    assert phases[4].redraw == (14, 17)
    assert phases[4].scale == ((14, 0.9), (17, 0.9))
    assert phases[-1].trains == tuple(range(30))


@given(depth=st.integers(2, 100))
def test_freezing_only_ever_freezes_and_from_the_front(depth: int) -> None:
    phases = freezing(depth).phases
    assert len(phases) == min(4, depth)
    for before, after in pairwise(phases):
        assert set(after.trains) < set(before.trains)
        assert after.trains == tuple(range(after.trains[0], depth))
        assert after.prefix(depth) == tuple(range(after.trains[0]))


@given(depth=st.integers(2, 100))
def test_stacking_copies_the_small_model_upwards_in_order(depth: int) -> None:
    shallow, stacked = stacking(depth).phases
    count = len(shallow.running(depth))
    assert count == -(-depth // 3)
    assert [layer for layer, _ in stacked.copies] == list(range(count, depth))
    assert all((layer - source) % count == 0 and source < count for layer, source in stacked.copies)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: preset("freezing", 1), "from 2 to"),
        (lambda: preset("stacking", 1), "from 2 to"),
        (lambda: preset("publised", 12), r"unknown schedule 'publised' \(str\)"),
        (lambda: random_freezing(stacking(6), seed=0), "phase shallow: the phase adds layers"),
    ],
)
def test_invalid_presets_are_refused(make: Callable[[], object], message: str) -> None:
    with pytest.raises(PlanError, match=message):
        make()


@given(made=schedules(growing=False), seed=st.integers(0, 10**6))
def test_random_freezing_trains_as_many_layers_in_every_phase(made: GrowthSchedule, seed: int) -> None:
    drawn = random_freezing(made, seed)
    assert [len(phase.trains) for phase in drawn.phases] == [len(phase.trains) for phase in made.phases]
    assert drawn.bounds(1000) == made.bounds(1000)
    assert drawn == random_freezing(made, seed)


def test_random_freezing_draws_evenly_and_anew_for_each_phase_and_seed() -> None:
    drawn = [random_freezing(published(12), seed) for seed in range(600)]
    counts = [sum(layer in made.phases[0].trains for made in drawn) for layer in range(12)]
    # The expected count is 100 each, with a standard deviation of 9.1.
    assert all(60 < count < 140 for count in counts)
    same = sum(made.phases[1].trains == made.phases[2].trains for made in drawn)
    assert same < 30, "1 in 66 is expected: 9"


DEPTHS = st.integers(MIN_LAYERS, 200)


@given(depth=DEPTHS)
def test_from_eight_layers_on_every_role_has_a_layer_and_every_layer_one_role(depth: int) -> None:
    players = published_roles(depth)
    assert set(players) == set(ROLES)
    assert all(players.values()), "a role without a layer"
    assert sorted(layer for layers in players.values() for layer in layers) == list(range(depth))


@given(depth=DEPTHS)
def test_no_layer_of_the_schedule_contradicts_itself(depth: int) -> None:
    players, phases = published_roles(depth), published(depth).phases
    early = [layer for phase in phases[:-1] for layer in phase.trains]
    assert not {*players["anti"], *players["last"]} & set(early)
    assert phases[0].trains == players["core"]
    twice = {layer for layer in early if early.count(layer) > 1}
    assert twice == set(players["organogenesis"]), "which learns in growth too, as published of 12 layers"


@given(depth=DEPTHS)
def test_the_core_and_the_anti_layers_lie_where_they_were_measured(depth: int) -> None:
    players = published_roles(depth)
    core, anti = players["core"], players["anti"]
    assert all(other == one + 1 for one, other in pairwise(core)), "the core is one block"
    if depth != 12:
        assert (core[0] + core[-1] + 1) / 2 / depth == pytest.approx(10 / 30, abs=1 / depth)
    assert (anti[0] + anti[-1] + 1) / 2 / depth == pytest.approx(16 / 30, abs=2 / depth)
    assert core[-1] < anti[0] < players["organogenesis"][0]
