"""Which layers lie on which node, where the layers of a model are spread over several machines.

blocks         contiguous blocks, as even as they go: what pipelines do
round-robin    layer l on node l modulo the number of nodes: what is lost with a node is spread over the depth
"""

from __future__ import annotations

from layerwise.errors import PlanError, near_matches
from layerwise.plan.samplers import nodes_of

LAYOUTS = ("blocks", "round-robin")

Nodes = tuple[tuple[int, ...], ...]
"""The layers of each node, ascending."""


def node_layout(depth: int, count: int, layout: str) -> Nodes:
    """`depth` layers on `count` nodes, none empty.

    >>> node_layout(7, 3, "round-robin")
    ((0, 3, 6), (1, 4), (2, 5))

    Raises `PlanError` for more nodes than layers, and for a layout that is not in `LAYOUTS`.
    """
    blocks = nodes_of(depth, count)
    match layout:
        case "blocks":
            return blocks
        case "round-robin":
            return tuple(tuple(range(node, depth, count)) for node in range(count))
    raise PlanError(f"layers are spread over nodes by a layout; {layout!r} is none: {near_matches(layout, LAYOUTS)}")
