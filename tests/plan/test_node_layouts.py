"""Layers on nodes: every layer on one of them, in blocks or round robin."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from layerwise.errors import PlanError
from layerwise.plan.samplers import LAYOUTS, node_layout


@given(depth=st.integers(1, 40), count=st.integers(1, 40), layout=st.sampled_from(LAYOUTS))
def test_every_layer_lies_on_one_node(depth: int, count: int, layout: str) -> None:
    count = min(count, depth)
    nodes = node_layout(depth, count, layout)
    assert len(nodes) == count
    assert sorted(layer for node in nodes for layer in node) == list(range(depth))
    assert max(map(len, nodes)) - min(map(len, nodes)) <= 1
    assert all(list(node) == sorted(node) for node in nodes)


def test_blocks_and_round_robin() -> None:
    assert node_layout(12, 4, "blocks") == ((0, 1, 2), (3, 4, 5), (6, 7, 8), (9, 10, 11))
    assert node_layout(12, 4, "round-robin") == ((0, 4, 8), (1, 5, 9), (2, 6, 10), (3, 7, 11))


def test_what_cannot_be_laid_out() -> None:
    with pytest.raises(PlanError, match="'ring' is none"):
        node_layout(12, 4, "ring")
    with pytest.raises(PlanError, match="3 layers lie on 1 to 3 nodes, not 4"):
        node_layout(3, 4, "round-robin")
