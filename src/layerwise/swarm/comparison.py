"""Spot checks: some answers of a node are computed again by another node, and the router's own layers decide.

They find faults (memory, weights, versions), not a malicious node that knows which answers are compared.
"""

from __future__ import annotations

import random
from dataclasses import replace

from layerwise.swarm.calls import Calling
from layerwise.swarm.messages import Array, Hop, Release, Reply
from layerwise.swarm.nodes.node import Node
from layerwise.swarm.request import SwarmRequest
from layerwise.swarm.trust import agree
from layerwise.swarm.wire import to_tensor

ROUTER = ""
"""The name under which the router's own layers answer."""

FIRST_OF = 8
"""Of so many requests of a node the first pass of one is compared, its first request included."""


class Restart(Exception):
    """All tokens of a request have to be computed again."""


class SpotChecks:
    """Compares answers of a `share` of requests from the first pass to the last, and quarantines nodes that are wrong.

    Args:
        calling: The nodes.
        share: Share of a node's requests that are compared; with 0 nothing is.
        referee: The router's own layers.
    """

    def __init__(self, calling: Calling, share: float, referee: Node) -> None:
        self.calling, self.members = calling, calling.members
        self.share, self.referee = share, referee

    async def find_wrong(self, request: SwarmRequest, node: str, hop: Hop, reply: Reply) -> frozenset[str]:
        """Return the nodes that were wrong about `hop`. Raises `Restart` if that takes all tokens so far."""
        hop = replace(hop, number=reply.number)
        if hop.given.index:
            checker = request.checkers.get(hop.visits)
            if checker is None:
                return frozenset()
            other = await self._run_checker(checker, hop)
            if other is None:
                raise Restart
        else:
            number = self.members[node].requests
            self.members[node].requests += 1
            is_whole = request.is_refereed or random.Random(request.request).random() < self.share
            if not self.share or (number % FIRST_OF and not is_whole):
                return frozenset()
            checker, other = await self._find_checker(request, node, hop)
            if is_whole:
                request.checkers[hop.visits] = checker
        agrees = _is_same(hop, reply.state, other)
        if agrees and (checker == ROUTER or any(reply.state.data)):  # two may be broken alike, and return zeros
            return frozenset()
        if checker == ROUTER:
            wrong = {node}
        elif hop.given.index:
            request.is_refereed = True
            raise Restart
        else:
            own = self._own(hop)
            wrong = {name for name, state in ((node, reply.state), (checker, other)) if not _is_same(hop, state, own)}
        what = f"layers {hop.visits[0].layer.name} to {hop.visits[-1].layer.name}"
        for name in sorted(wrong):
            reason = f"{name}: its answer to {what} contradicts the router's own layers"
            self.members.change(name, "quarantined", "quarantined", reason)
        return frozenset(wrong)

    def release(self, request: SwarmRequest) -> None:
        self.referee.handle(Release(request.key))

    async def _find_checker(self, request: SwarmRequest, node: str, hop: Hop) -> tuple[str, Array]:
        layers = [visit.layer for visit in hop.visits]
        for other in [] if request.is_refereed else self.members.holders(layers, node):
            request.touched.add(other)
            answer = await self._run_checker(other, hop)
            if answer is not None:
                return other, answer
        return ROUTER, self._own(hop)

    async def _run_checker(self, checker: str, hop: Hop) -> Array | None:
        if checker == ROUTER:
            return self._own(hop)
        response = await self.calling.hop(checker, hop, lambda: True)
        return response.state if isinstance(response, Reply) else None

    def _own(self, hop: Hop) -> Array:
        response = self.referee.handle(hop)
        if not isinstance(response, Reply):
            raise RuntimeError(f"the router's own layers did not answer: {response}")
        return response.state


def _is_same(hop: Hop, one: Array, other: Array) -> bool:
    return agree(to_tensor(one), to_tensor(other), len(hop.visits))
