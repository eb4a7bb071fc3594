"""A single pass along several routes that share as few nodes as can be, and which of their outcomes is right.

Spot checks find a wrong node within some requests; until then its answers are used. Where that is too late, every
request of a one-pass model is computed `SwarmSettings.paths` times, and the outcome of the majority is returned.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import torch
from torch import Tensor

from layerwise.stack import Capture, Stack
from layerwise.swarm.request import SwarmRequest
from layerwise.swarm.router import Router
from layerwise.swarm.trust.replica_comparison import relative_difference
from layerwise.swarm.trust.trust import judge_paths, tolerance


async def forward_by_paths(
    router: Router, session: SwarmRequest, stack: Stack, captured: Capture, paths: int
) -> Tensor:
    """The state at which at least two, and most, of `paths` passes arrive, along routes that share no node's layer.

    Nodes that the comparison proves wrong are quarantined. Where there are not two such routes, and where no majority
    agrees, the router's own layers, those of `stack`, run the plan too, and are right. Raises `BelowQuorum` where too
    few layers are left.
    """
    runs: list[tuple[SwarmRequest, Tensor]] = []
    try:
        for number in range(paths):
            path = SwarmRequest.of(f"{session.request}/path-{number}", session.requested, one_pass=True)
            each = path if number else session
            each.avoided = frozenset(node for other, _ in runs for node in other.nodes)
            runs.append((each, await router.forward(each, captured)))
        compared = _apart(runs)
        states, nodes = [state for _, state in compared], [each.nodes for each, _ in compared]
        tolerated = tolerance(states[0].shape[-1], len(session.live.visits), torch.finfo(states[0].dtype).eps)
        right = _majority(states, tolerated)
        if right is None:
            with torch.inference_mode():
                right = stack.run(session.live.running, captured)
            states, nodes = [right] * (len(states) + 1) + states, [frozenset()] * (len(states) + 1) + nodes
        router.distrust(judge_paths(nodes, _differences(states), tolerated), f"one of {len(runs)} paths")
        return right
    finally:
        await asyncio.gather(*(router.release(each) for each, _ in runs[1:]))


def _apart(runs: Sequence[tuple[SwarmRequest, Tensor]]) -> list[tuple[SwarmRequest, Tensor]]:
    """The runs of the first one's live plan on which no node runs the same layer as on an earlier one."""
    apart: list[tuple[SwarmRequest, Tensor]] = []
    for path, state in runs:
        if path.live == runs[0][0].live and not any(path.warm.keys() & other.warm.keys() for other, _ in apart):
            apart.append((path, state))
    return apart


def _differences(states: Sequence[Tensor]) -> list[list[float]]:
    return [[relative_difference(left, right) for right in states] for left in states]


def _majority(states: Sequence[Tensor], tolerated: float) -> Tensor | None:
    """The first state that more than half of the states, and at least two, agree with."""
    agreeing = [sum(difference <= tolerated for difference in row) for row in _differences(states)]
    most = max(agreeing)
    return states[agreeing.index(most)] if most > 1 and 2 * most > len(states) else None
