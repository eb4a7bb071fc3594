"""Placements: every layer somewhere, within memory, replicas apart, the important first; and few moves."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from layerwise.errors import SwarmError
from layerwise.swarm.messages import RemoteLayer
from layerwise.swarm.placement import Moves, Placement, assign, rebalance
from layerwise.swarm.replication import Capacity, Demand

EACH = 10


def layers_of(depth: int) -> list[RemoteLayer]:
    return [RemoteLayer(number) for number in range(depth)]


def equal(count: int, layers: int, speed: float = 1.0) -> list[Capacity]:
    return [Capacity(f"n{number}", layers * EACH, speed) for number in range(count)]


def wanted(depth: int, **options: Any) -> Demand:
    """Two copies of layers of one size."""
    return Demand(layers_of(depth), dict.fromkeys(layers_of(depth), EACH), **options)


def holders(placement: Placement, layer: RemoteLayer) -> list[str]:
    return [node for node, held in placement.items() if layer in held]


def numbers(placement: Placement) -> dict[str, list[int]]:
    return {node: [layer.number for layer in held] for node, held in placement.items()}


@st.composite
def swarms(draw: st.DrawFn, *, equal_bytes: bool = True) -> tuple[Demand, list[Capacity]]:
    layers = layers_of(draw(st.integers(1, 9)))
    sizes = {layer: EACH if equal_bytes else draw(st.integers(1, 20)) for layer in layers}
    memory = st.integers(0, 10 * EACH)
    nodes = draw(st.lists(st.tuples(memory, st.sampled_from([0.5, 1.0, 4.0])), min_size=1, max_size=6))
    capacities = [Capacity(f"n{number}", size, speed) for number, (size, speed) in enumerate(nodes)]
    importance = {layer.number: draw(st.floats(0, 2)) for layer in layers if draw(st.booleans())}
    return Demand(layers, sizes, draw(st.integers(1, 3)), importance), capacities


def check(placement: Placement, demand: Demand, capacities: list[Capacity]) -> None:
    assert set(placement) == {each.name for each in capacities}
    for node in capacities:
        held = placement[node.name]
        assert list(held) == [layer for layer in demand.layers if layer in held], "in order, none twice"
        assert sum(demand.layer_bytes[layer] for layer in held) <= node.bytes
    assert all(holders(placement, layer) for layer in demand.layers)


@given(swarms())
def test_layers_of_one_size_are_copied_as_often_as_memory_allows(swarm: tuple) -> None:
    demand, capacities = swarm
    layers, importance = demand.layers, demand.importance
    room = sum(min(len(layers), node.bytes // EACH) for node in capacities)
    if room < len(layers):
        with pytest.raises(SwarmError, match="lacking"):
            assign(*swarm)
        return
    placement = assign(*swarm)
    check(placement, demand, capacities)
    copies = {layer: len(holders(placement, layer)) for layer in layers}
    most = min(demand.replicas, len(capacities))
    assert max(copies.values()) <= most
    if room >= most * len(layers):
        assert set(copies.values()) == {most}
    for a in layers:
        for b in layers:
            assert copies[a] >= copies[b] or importance.get(a.number, 0) <= importance.get(b.number, 0)


@given(swarms(equal_bytes=False))
def test_layers_of_any_size_lie_within_memory_and_an_unchanged_swarm_moves_nothing(swarm: tuple) -> None:
    demand, capacities = swarm
    sizes = demand.layer_bytes
    try:
        placement = assign(*swarm)
    except SwarmError:
        largest, total = max(sizes.values()), sum(node.bytes for node in capacities)
        assert total < sum(sizes.values()) + len(capacities) * largest, "a copy fits with any remainders"
        return
    check(placement, demand, capacities)
    assert rebalance(placement, *swarm) == Moves({}, {}, placement)


@given(swarms(), st.data())
def test_moves_lead_to_a_placement_that_keeps_the_laws(swarm: tuple, data: st.DataObject) -> None:
    demand, capacities = swarm
    gone = data.draw(st.sets(st.sampled_from([each.name for each in capacities])))
    joined = [
        Capacity(f"new{number}", size * EACH) for number, size in enumerate(data.draw(st.lists(st.integers(0, 9))))
    ]
    now = [each for each in capacities if each.name not in gone] + joined
    try:
        before = assign(*swarm)
        moves = rebalance(before, demand, now)
    except SwarmError:
        return
    check(moves.after, demand, now)
    for node, held in moves.after.items():
        had = set(before.get(node, ()))
        assert set(held) == (had | set(moves.hold.get(node, ()))) - set(moves.drop.get(node, ()))
    assert not gone & set(moves.hold)
    assert rebalance(moves.after, demand, now).drop == {}


@given(st.integers(2, 8), st.integers(2, 24), st.data())
def test_with_two_replicas_any_one_node_may_die(count: int, depth: int, data: st.DataObject) -> None:
    placement = assign(wanted(depth), equal(count, depth))
    dead = data.draw(st.sampled_from(sorted(placement)))
    assert all(set(holders(placement, layer)) - {dead} for layer in layers_of(depth))


def test_equal_nodes_hold_equal_runs() -> None:
    placement = assign(wanted(12), equal(8, 12))
    assert numbers(placement) == {f"n{n}": [*range(3 * n % 12, 3 * n % 12 + 3)] for n in range(8)}


def test_runs_are_as_long_as_the_nodes_are_fast() -> None:
    nodes = [Capacity("slow", 1000, 1.0), Capacity("fast", 1000, 3.0)]
    assert numbers(assign(wanted(12, replicas=1), nodes)) == {
        "slow": [0, 1, 2],
        "fast": [*range(3, 12)],
    }
    three = assign(wanted(6), equal(3, 6))
    assert numbers(three) == {"n0": [0, 1, 2, 3], "n1": [0, 1, 4, 5], "n2": [2, 3, 4, 5]}


def test_the_most_important_layers_have_the_second_copies() -> None:
    placement = assign(wanted(6, importance={1: 2.0, 4: 1.0}), equal(4, 2))
    assert [len(holders(placement, layer)) for layer in layers_of(6)] == [1, 2, 1, 1, 2, 1]


def test_what_is_lacking_is_said() -> None:
    with pytest.raises(SwarmError, match="6 layers take 60 bytes and the nodes offer 40: 20 bytes are lacking"):
        assign(wanted(6), equal(2, 2))
    with pytest.raises(SwarmError, match=r"in pieces that do not fit: .* at least 1 bytes are lacking there"):
        assign(wanted(2), [Capacity(f"n{number}", 9) for number in range(3)])
    with pytest.raises(SwarmError, match="at least 1 replica, not 0"):
        wanted(2, replicas=0)


def test_a_first_copy_may_move_a_layer_that_fits_elsewhere() -> None:
    layers = layers_of(3)
    sizes = {layers[0]: 4, layers[1]: 4, layers[2]: 8}
    placement = assign(Demand(layers, sizes, replicas=1), [Capacity("a", 8), Capacity("b", 8)])
    assert sorted(map(len, placement.values())) == [1, 2]


def test_the_layers_of_a_dead_node_are_held_elsewhere_and_nothing_else_moves() -> None:
    before = assign(wanted(12), equal(8, 12))
    moves = rebalance(before, wanted(12), equal(8, 12)[1:])
    assert moves.drop == {}
    assert sorted(layer.number for held in moves.hold.values() for layer in held) == [0, 1, 2]
    assert all(len(holders(moves.after, layer)) == 2 for layer in layers_of(12))


def test_a_node_that_joins_takes_its_share_and_no_more() -> None:
    before = assign(wanted(12), equal(5, 12))
    moves = rebalance(before, wanted(12), equal(6, 12))
    assert set(moves.hold) == {"n5"}
    assert len(moves.hold["n5"]) == 4
    assert sorted(len(held) for held in moves.after.values()) == [4] * 6
    taken = sorted(layer.number for layer in moves.hold["n5"])
    assert [b - a for a, b in pairwise(taken)] == [1, 1, 1], "one run"


def test_a_node_with_less_memory_than_before_drops_what_others_hold() -> None:
    before = assign(wanted(4), equal(2, 4))
    moves = rebalance(before, wanted(4), [Capacity("n0", 4 * EACH), Capacity("n1", EACH)])
    assert moves.hold == {}
    assert len(moves.drop["n1"]) == 3
    assert len(moves.after["n0"]) == 4
