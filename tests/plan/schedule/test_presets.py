"""The presets fit every depth and agree with their sources."""

from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drawn_schedules import schedules
from layerwise.errors import PlanError
from layerwise.plan.schedule import GrowthSchedule
from layerwise.plan.schedule.presets import (
    FEWEST_LAYERS,
    PRESETS,
    ROLES,
    freezing,
    lisa,
    preset,
    published,
    published_roles,
    random_freezing,
    stacking,
)


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


@given(depth=st.integers(1, 7))
def test_a_shallow_model_has_layers_of_several_roles(depth: int) -> None:
    assert all(phase.trains for phase in published(depth).phases)


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
        (lambda: preset("publised", 12), "there is no schedule 'publised' .* did you mean published"),
        (lambda: random_freezing(stacking(6), seed=0), "phase shallow: layers grow in"),
    ],
)
def test_what_no_preset_can_be_is_refused(make: Callable[[], object], message: str) -> None:
    with pytest.raises(PlanError, match=message):
        make()


def test_lisa_in_a_model_of_one_layer() -> None:
    assert lisa(1).phases[0].sample == 1


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


DEPTHS = st.integers(FEWEST_LAYERS, 200)


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
