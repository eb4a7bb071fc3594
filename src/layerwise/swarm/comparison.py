"""Comparing a node's answer with those of its replicas, and finding out who is wrong."""

from __future__ import annotations

from dataclasses import replace
from itertools import count

import torch
from torch import Tensor

from layerwise.swarm.calls import Calling
from layerwise.swarm.messages import Array, Hop, Release, RemoteLayer, Reply
from layerwise.swarm.node_records import NodeRecords
from layerwise.swarm.nodes.node import Node
from layerwise.swarm.trust import ROUTER, Judgement, Norms, SpotCheck, Trust, judge, tolerance
from layerwise.swarm.wire import to_tensor

MOST_REPLICAS = 2
"""Replicas that are asked about one hop."""


class ReplicaComparison:
    """Which hops are compared, by whom, and what follows. What is found wrong is quarantined, and named."""

    def __init__(self, calling: Calling, members: NodeRecords, share: float, seed: int, referee: Node | None) -> None:
        self.referee = referee
        self.calling = calling
        self.members = members
        self.trust = Trust(SpotCheck(share, seed)) if share else None
        self._numbers = count()

    def reason(self, node: str, hop: Hop, reply: Reply, *, begins: bool) -> str | None:
        """Why the answer to the last pass of a hop is to be compared, if it is to be."""
        if self.trust is None:
            return None
        alone = not self.members.holders(_kind(hop)[0], node)
        return self.trust.observe(node, _kind(hop), _norms(hop, reply), begins=begins, alone=alone)

    async def wrong(self, node: str, hop: Hop, reply: Reply, why: str) -> frozenset[str]:
        """The nodes that a comparison of this answer proves wrong; they are quarantined.

        `hop` holds all passes of the request so far. Where two answers differ a third is asked for: of another
        replica, of the node itself, or of the router's own layers.
        """
        assert self.trust is not None, "only what is watched is compared"
        answers: list[tuple[str, Tensor]] = [(node, _wide(reply.states[-1]))]
        others = self.members.holders(_kind(hop)[0], node)[:MOST_REPLICAS]
        given = hop.passes[-1].state
        eps = torch.finfo(getattr(torch, given.dtype)).eps
        tolerated = tolerance(given.shape[-1], len(hop.visits), eps)
        outside = self.trust.bounds.holds(_kind(hop), _norms(hop, reply)) is False
        judgement = Judgement(frozenset(), frozenset())
        for other in (*others, node) if others else ():
            answer = await self._again(other, hop)
            if answer is None:
                continue
            answers.append((other, answer))
            names = [name for name, _ in answers]
            differences = [[relative_difference(left, right) for _, right in answers] for _, left in answers]
            judgement = judge(names, differences, tolerated, {node} if outside else ())
            if judgement.right:
                break
        if not judgement.right and self.referee is not None:
            judgement = self._refereed(hop, answers, tolerated)
        self.trust.decide(judgement, f"layers {hop.visits[0].layer.name} to {hop.visits[-1].layer.name}, {why}")
        for name in sorted({*judgement.wrong, node} & self.trust.quarantined.keys()):
            self.members.change(name, "quarantined", "quarantined", f"{name}: {self.trust.quarantined[name]}")
        return judgement.wrong

    def _refereed(self, hop: Hop, answers: list[tuple[str, Tensor]], tolerated: float) -> Judgement:
        """Who is right by the router's own layers."""
        assert self.referee is not None, "there is a referee"
        renamed = self._renamed(hop)
        own = self.referee.handle(renamed)
        self.referee.handle(Release(renamed.request))
        if not isinstance(own, Reply):
            return Judgement(frozenset(), frozenset())
        every = [*answers, (ROUTER, _wide(own.states[-1]))]
        differences = [[relative_difference(left, right) for _, right in every] for _, left in every]
        return judge([name for name, _ in every], differences, tolerated)

    def _renamed(self, hop: Hop) -> Hop:
        """The hop as one of a request of its own, from the first pass on."""
        return replace(hop, request=f"{hop.request}/compared-{next(self._numbers)}", number=0, fresh=True, every=False)

    async def _again(self, node: str, hop: Hop) -> Tensor | None:
        """What a node answers to the hop under another name, from the first pass on."""
        response = await self.calling.once(node, self._renamed(hop))
        return _wide(response.states[-1]) if isinstance(response, Reply) else None


def relative_difference(left: Tensor, right: Tensor) -> float:
    """The norm of the difference, relative to the larger of the two, in float32 or wider."""
    wide = torch.promote_types(left.dtype, torch.float32)
    left, right = left.to(wide), right.to(wide)
    larger = max(float(left.norm()), float(right.norm()), 1e-30)
    return float((left - right).norm()) / larger


def _kind(hop: Hop) -> tuple[tuple[RemoteLayer, ...], bool]:
    """What hops are compared by: the layers, and whether a prompt is read."""
    return tuple(visit.layer for visit in hop.visits), hop.passes[-1].index == 0


def _norms(hop: Hop, reply: Reply) -> Norms:
    entering, leaving = _wide(hop.passes[-1].state), _wide(reply.states[-1])
    return Norms(float(entering.norm()), float(leaving.norm()), float((leaving - entering).norm()))


def _wide(array: Array) -> Tensor:
    """The state, in float32 or wider."""
    state = to_tensor(array)
    return state.to(torch.promote_types(state.dtype, torch.float32))
