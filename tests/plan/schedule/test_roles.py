"""Every role of the published schedule has a layer, every layer one role, and the named places are kept."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from layerwise.plan.schedule.presets import FEWEST_LAYERS, ROLES, published, published_roles

DEPTHS = st.integers(FEWEST_LAYERS, 200)


@given(depth=DEPTHS)
def test_from_eight_layers_on_every_role_has_a_layer_and_every_layer_one_role(depth: int) -> None:
    players = published_roles(depth)
    assert set(players) == set(ROLES)
    assert all(players.values()), "a role without a layer"
    assert sorted(layer for layers in players.values() for layer in layers) == list(range(depth))


@given(depth=DEPTHS)
def test_no_layer_of_the_schedule_contradicts_itself(depth: int) -> None:
    """What waits for the last phase learns in no other, and what is given new weights has learned nothing."""
    players, phases = published_roles(depth), published(depth).phases
    early = [layer for phase in phases[:-1] for layer in phase.trains]
    assert not {*players["anti"], *players["last"]} & set(early)
    assert phases[0].trains == players["core"]
    twice = {layer for layer in early if early.count(layer) > 1}
    assert twice == set(players["organogenesis"]), "which learns in growth too, as published of 12 layers"


@given(depth=DEPTHS)
def test_the_core_and_the_anti_layers_lie_where_they_were_measured(depth: int) -> None:
    """Of 30 layers the core reaches from 8 to 12 and the anti-layers from 14 to 18; of 12 the core is 4-5."""
    players = published_roles(depth)
    core, anti = players["core"], players["anti"]
    assert all(other == one + 1 for one, other in pairwise(core)), "the core is one block"
    if depth != 12:
        assert (core[0] + core[-1] + 1) / 2 / depth == pytest.approx(10 / 30, abs=1 / depth)
    assert (anti[0] + anti[-1] + 1) / 2 / depth == pytest.approx(16 / 30, abs=2 / depth)
    assert core[-1] < anti[0] < players["organogenesis"][0]
