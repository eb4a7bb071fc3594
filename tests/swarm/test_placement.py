"""Placements: every layer on as many nodes as it has replicas, in runs of equal length; and copies that are missing."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from layerwise.errors import SwarmError
from layerwise.swarm.messages import RemoteLayer
from layerwise.swarm.placement import Placement, assign_layers, assign_missing


def layers_of(depth: int) -> list[RemoteLayer]:
    return [RemoteLayer(number) for number in range(depth)]


def placed(depth: int, nodes: int, replicas: int = 2) -> Placement:
    return assign_layers(layers_of(depth), [f"n{number}" for number in range(nodes)], replicas)


def numbers(placement: Placement) -> dict[str, list[int]]:
    return {node: [layer.number for layer in held] for node, held in placement.items()}


@given(st.integers(1, 24), st.integers(1, 9), st.integers(1, 4))
def test_copies_of_a_layer_are_on_different_nodes_and_nodes_hold_equally_many(
    depth: int, nodes: int, replicas: int
) -> None:
    placement = placed(depth, nodes, replicas)
    assert len(placement) == nodes
    for held in placement.values():
        assert list(held) == sorted(set(held)), "in order, none twice"
        assert abs(len(held) - depth * min(replicas, nodes) / nodes) < 1
    copies = Counter(layer for held in placement.values() for layer in held)
    assert copies == dict.fromkeys(layers_of(depth), min(replicas, nodes))


@given(st.integers(1, 24), st.integers(1, 9), st.integers(1, 4), st.data())
def test_missing_copies_are_placed_on_live_nodes_and_nothing_else_moves(
    depth: int, nodes: int, replicas: int, data: st.DataObject
) -> None:
    placement = placed(depth, nodes, replicas)
    names = data.draw(st.sets(st.sampled_from(sorted(placement))))
    live = {name: placement[name] for name in sorted(names)}
    added = assign_missing(layers_of(depth), live, replicas)
    assert not any(set(placement[name]) & set(own) for name, own in added.items())
    held = Counter(layer for name, own in live.items() for layer in (*own, *added.get(name, ())))
    assert held == (dict.fromkeys(layers_of(depth), min(replicas, len(live))) if live else {})
    after = {name: (*own, *added.get(name, ())) for name, own in live.items()}
    assert assign_missing(layers_of(depth), after, replicas) == {}


def test_nodes_hold_runs_of_consecutive_layers() -> None:
    assert numbers(placed(12, 8)) == {f"n{n}": [*range(3 * n % 12, 3 * n % 12 + 3)] for n in range(8)}
    assert numbers(placed(6, 3)) == {"n0": [0, 1, 2, 3], "n1": [0, 1, 4, 5], "n2": [2, 3, 4, 5]}
    for nodes, replicas in ((1, 0), (0, 1)):
        with pytest.raises(SwarmError, match=f"must be at least 1, got {nodes} and {replicas}"):
            placed(2, nodes, replicas)


@pytest.mark.parametrize(
    ("beside", "apart", "chosen"),
    [
        ([2, 3, 4], [4, 5], "beside"),  # 4 against 3 * 1.5
        ([2, 3, 4, 5], [4, 5], "apart"),  # 5 against 3 * 1.5
        ([2], [], "apart"),  # 2 against 1 * 1.5
    ],
)
def test_a_node_without_a_neighbor_counts_as_half_as_much_again(
    beside: list[int], apart: list[int], chosen: str
) -> None:
    held = {"beside": beside, "apart": apart}
    live = {name: tuple(map(RemoteLayer, own)) for name, own in held.items()}
    assert assign_missing([RemoteLayer(1)], live, 1) == {chosen: (RemoteLayer(1),)}
