"""Copies one at a time: which copy makes room for which, and where it goes, by hand and against all placements."""

from __future__ import annotations

import itertools

import pytest

from layerwise.errors import SwarmError
from layerwise.swarm.messages import RemoteLayer
from layerwise.swarm.placement import assign
from layerwise.swarm.replication import Capacity, Demand, Draft

A, B, C, D, E, F = (RemoteLayer(number) for number in range(6))


def draft(
    room: dict[str, int], held: dict[str, tuple[RemoteLayer, ...]], importance: dict[int, float], replicas: int = 2
) -> Draft:
    """Layers that take 1 each, as many as are held or weighed, on nodes of equal speed with room for so many."""
    layers = sorted({layer for own in held.values() for layer in own} | {RemoteLayer(each) for each in importance})
    demand = Demand(layers, dict.fromkeys(layers, 1), replicas, importance)
    return Draft(demand, [Capacity(name, size) for name, size in room.items()], held)


@pytest.mark.parametrize(("mine", "is_less"), [(1.0, False), (1.0 + 1e-9, True), (1.0 - 1e-9, False)])
def test_a_second_copy_is_less_needed_than_that_of_a_layer_that_matters_more(mine: float, is_less: bool) -> None:
    """Of equal layers neither gives way, or the two would take each other's memory for ever."""
    made = draft({"x": 1, "y": 1, "z": 1}, {"x": (A,), "y": (B,), "z": (A,)}, {0: 1.0, 1: mine})
    assert made._is_less_needed(A, B, 2) is is_less


@pytest.mark.parametrize(
    ("importance", "copies"),
    [
        ({0: 1.0, 1: 2.0}, {A: 1, B: 2}),  # the more important layer takes the second copy of the less important
        ({0: 2.0, 1: 1.0}, {A: 2, B: 1}),
        ({0: 1.0, 1: 1.0}, {A: 2, B: 1}),  # of equals nothing moves
    ],
)
def test_a_second_copy_gives_way_to_that_of_a_more_important_layer(
    importance: dict[int, float], copies: dict[RemoteLayer, int]
) -> None:
    made = draft({"x": 1, "y": 1, "z": 1}, {"x": (A,), "y": (B,), "z": (A,)}, importance)
    made.complete()
    assert made.copies == copies


def test_a_last_copy_never_gives_way() -> None:
    made = draft({"x": 1}, {"x": (A,)}, {0: 1.0, 1: 2.0}, replicas=1)
    with pytest.raises(SwarmError, match="lacking"):
        made.complete()
    assert made.copies == {A: 1, B: 0}, "the layer that is held stays, however important the other is"


@pytest.mark.parametrize(
    ("beside", "apart", "chosen"),
    [
        ((C, D, E), (E, F), "beside"),  # 4 against 3 * 1.5
        ((C, D, E, F), (E, F), "apart"),  # 5 against 3 * 1.5
        ((C,), (), "apart"),  # 2 against 1 * 1.5
    ],
)
def test_a_node_without_a_neighbour_counts_as_half_as_much_again(
    beside: tuple[RemoteLayer, ...], apart: tuple[RemoteLayer, ...], chosen: str
) -> None:
    """Layer 1 goes where the node then takes least time, times 1.5 where neither layer 0 nor 2 is held."""
    made = draft({"beside": 9, "apart": 9}, {"beside": beside, "apart": apart}, {1: 1.0}, replicas=1)
    made.complete()
    assert [name for name, held in made.held.items() if B in held] == [chosen]


@pytest.mark.parametrize("room", list(itertools.combinations_with_replacement(range(4), 3)))
@pytest.mark.parametrize("weights", [(3, 2, 1), (1, 3, 2), (1, 1, 1)])
def test_copies_are_the_best_of_all_placements(room: tuple[int, ...], weights: tuple[int, ...]) -> None:
    """Three layers on three nodes: of all placements of two copies each at most, no ladder of copies is better."""
    layers, importance = (A, B, C), dict(enumerate(map(float, weights)))
    choices = [[set(own) for size in range(fits + 1) for own in itertools.combinations(layers, size)] for fits in room]

    def ladder(copies: dict[RemoteLayer, int]) -> tuple[int, ...]:
        order = sorted(layers, key=lambda layer: -importance[layer.number])
        return tuple(int(copies[layer] >= number) for number in (1, 2) for layer in order)

    every = [{layer: sum(layer in own for own in held) for layer in layers} for held in itertools.product(*choices)]
    best = max(ladder(copies) for copies in every if max(copies.values()) <= 2)
    nodes = [Capacity(name, size) for name, size in zip("xyz", room, strict=True)]
    demand = Demand(layers, dict.fromkeys(layers, 1), 2, importance)
    if 0 in best[:3]:
        with pytest.raises(SwarmError, match="lacking"):
            assign(demand, nodes)
        return
    made = assign(demand, nodes)
    assert ladder({layer: sum(layer in held for held in made.values()) for layer in layers}) == best
