"""Comparing a node's answer with those of its replicas, and finding out who is wrong."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import count

import torch
from torch import Tensor

from layerwise.swarm.calls import Calling
from layerwise.swarm.messages import Array, Hop, Release, Reply
from layerwise.swarm.nodes.node import Node
from layerwise.swarm.trust import ROUTER, Judgement, is_compared, judge, relative_difference, tolerance
from layerwise.swarm.wire import to_tensor

MOST_REPLICAS = 2


class ReplicaComparison:
    """Which hops are compared (a `share` of them, none with 0); a node that is proved wrong is quarantined."""

    def __init__(self, calling: Calling, share: float, seed: int, referee: Node | None) -> None:
        self.referee = referee
        self.calling = calling
        self.members = calling.members
        self.share, self.seed = share, seed
        self._numbers = count()

    def chooses(self, node: str, *, begins: bool) -> bool:
        """Whether the next answer of a node is compared; `begins`: it is the node's first of a request."""
        if not self.share:
            return False
        record = self.members[node]
        chosen = is_compared(node, record.answers, record.requests if begins else None, self.share, self.seed)
        record.answers += 1
        record.requests += begins
        return chosen

    async def wrong(self, node: str, hop: Hop, whole: Hop, reply: Reply) -> frozenset[str]:
        """Quarantine and return the nodes that a comparison of the answer to `hop` proves wrong.

        Others compute `whole`, all tokens up to those of the hop. Where two answers differ, or agree on zeros, more are
        asked.
        """
        answers: list[tuple[str, Tensor]] = [(node, _wide(reply.state))]
        others = self.members.holders([visit.layer for visit in hop.visits], node)[:MOST_REPLICAS]
        given = hop.given.state
        eps = torch.finfo(getattr(torch, given.dtype)).eps
        tolerated = tolerance(given.shape[-1], len(hop.visits), eps)
        judgement = Judgement(frozenset(), frozenset())
        for other in (*others, node) if others else ():
            answer = await self._again(other, whole, reply.state.shape[-2])
            if answer is None:
                continue
            answers.append((other, answer))
            judgement = _judged(answers, tolerated)
            if judgement.right:
                break
        agreed_on_zeros = node in judgement.right and not answers[0][1].any()
        if (not judgement.right or agreed_on_zeros) and self.referee is not None:
            judgement = self._refereed(self.referee, whole, answers, tolerated, reply.state.shape[-2])
        against = f"that of {' and '.join(sorted(judgement.right))}" if judgement.right else "its own or the router's"
        what = f"layers {hop.visits[0].layer.name} to {hop.visits[-1].layer.name}"
        for name in sorted(judgement.wrong):
            reason = f"{name}: its answer to {what} contradicts {against}"
            self.members.change(name, "quarantined", "quarantined", reason)
        return judgement.wrong

    def _refereed(
        self, referee: Node, whole: Hop, answers: list[tuple[str, Tensor]], tolerated: float, tokens: int
    ) -> Judgement:
        renamed = self._renamed(whole)
        own = referee.handle(renamed)
        referee.handle(Release(renamed.request))
        if not isinstance(own, Reply):
            return Judgement(frozenset(), frozenset())
        return _judged([*answers, (ROUTER, _wide(own.state)[..., -tokens:, :])], tolerated)

    def _renamed(self, whole: Hop) -> Hop:
        return replace(whole, request=f"{whole.request}/compared-{next(self._numbers)}", number=0, fresh=True)

    async def _again(self, node: str, whole: Hop, tokens: int) -> Tensor | None:
        response = await self.calling.once(node, self._renamed(whole), leaves=True)
        return _wide(response.state)[..., -tokens:, :] if isinstance(response, Reply) else None


def _judged(answers: Sequence[tuple[str, Tensor]], tolerated: float) -> Judgement:
    differences = [[relative_difference(left, right) for _, right in answers] for _, left in answers]
    return judge([name for name, _ in answers], differences, tolerated)


def _wide(array: Array) -> Tensor:
    state = to_tensor(array)
    return state.to(torch.promote_types(state.dtype, torch.float32))
