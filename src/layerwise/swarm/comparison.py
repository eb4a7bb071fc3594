"""Comparing a node's answer with those of its replicas, and finding out who is wrong."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import replace
from itertools import count
from typing import TypeAlias

import torch
from torch import Tensor

from layerwise.swarm.calls import Calling
from layerwise.swarm.messages import Array, Hop, Release, RemoteLayer, Reply
from layerwise.swarm.nodes.node import Node
from layerwise.swarm.trust import (
    ROUTER,
    STRIKES,
    Judgement,
    NormBounds,
    is_compared,
    judge,
    norm_change,
    relative_difference,
    tolerance,
)
from layerwise.swarm.wire import to_tensor

MOST_REPLICAS = 2
"""Replicas that are asked about one hop."""


Kind: TypeAlias = tuple[tuple[RemoteLayer, ...], bool]
"""What hops are compared by: the layers, and whether a text is read from its beginning."""


class ReplicaComparison:
    """Which hops are compared, by whom, and what follows: a node that is proved wrong is quarantined.

    `share` of the hops are spot checks; with 0 nothing is compared.
    """

    def __init__(self, calling: Calling, share: float, seed: int, referee: Node | None) -> None:
        self.referee = referee
        self.calling = calling
        self.members = calling.members
        self.share, self.seed = share, seed
        self._bounds: defaultdict[Kind, NormBounds] = defaultdict(NormBounds)
        self._numbers = count()

    def reason(self, node: str, hop: Hop, reply: Reply, *, begins: bool) -> str | None:
        """Why the answer to the last pass of a hop is to be compared, if it is to be; `begins` says that this is the
        node's first hop of a request.

        A node with no replica that leaves the bounds too many times in a row is quarantined.
        """
        if not self.share:
            return None
        record, kind = self.members[node], _kind(hop)
        chosen = is_compared(node, record.answers, record.requests if begins else None, self.share, self.seed)
        record.answers += 1
        record.requests += begins
        change = norm_change(_wide(hop.given.state), _wide(reply.state))
        if self._bounds[kind].holds(change) is False:
            record.strikes += 1
            if record.strikes >= STRIKES and not self.members.holders(kind[0], node):
                self._quarantine(
                    node, f"{record.strikes} answers in a row changed the norm of the state as none before"
                )
            return "its norms are outside their bounds"
        record.strikes = 0
        self._bounds[kind].learn(change)
        return "a spot check" if chosen else None

    async def wrong(self, node: str, hop: Hop, whole: Hop, reply: Reply, why: str) -> frozenset[str]:
        """The nodes that a comparison of the answer to `hop` proves wrong; they are quarantined.

        Others are given the `whole`, all tokens up to those of the hop. Where two answers differ a third is asked for:
        of another replica, of the node itself, or of the router's own layers. These are asked, too, where replicas
        agree on a state whose norms are outside their bounds.
        """
        answers: list[tuple[str, Tensor]] = [(node, _wide(reply.state))]
        others = self.members.holders(_kind(hop)[0], node)[:MOST_REPLICAS]
        given = hop.given.state
        eps = torch.finfo(getattr(torch, given.dtype)).eps
        tolerated = tolerance(given.shape[-1], len(hop.visits), eps)
        outside = self._bounds[_kind(hop)].holds(norm_change(_wide(given), answers[0][1])) is False
        judgement = Judgement(frozenset(), frozenset())
        for other in (*others, node) if others else ():
            answer = await self._again(other, whole, reply.state.shape[-2])
            if answer is None:
                continue
            answers.append((other, answer))
            judgement = _judged(answers, tolerated, {node} if outside else ())
            if judgement.right:
                break
        # Two that are broken alike agree; so where the norms are like none before, agreement is not enough.
        is_settled = bool(judgement.right) and not (outside and node in judgement.right)
        if not is_settled and self.referee is not None:
            judgement = self._refereed(whole, answers, tolerated, reply.state.shape[-2])
        against = f"that of {' and '.join(sorted(judgement.right))}" if judgement.right else "its own or the router's"
        what = f"layers {hop.visits[0].layer.name} to {hop.visits[-1].layer.name}, {why}"
        for name in sorted(judgement.wrong):
            self._quarantine(name, f"its answer to {what} contradicts {against}")
        return judgement.wrong

    def _quarantine(self, node: str, reason: str) -> None:
        self.members.change(node, "quarantined", "quarantined", f"{node}: {reason}")

    def _refereed(self, whole: Hop, answers: list[tuple[str, Tensor]], tolerated: float, tokens: int) -> Judgement:
        """Who is right by the router's own layers."""
        assert self.referee is not None, "there is a referee"
        renamed = self._renamed(whole)
        own = self.referee.handle(renamed)
        self.referee.handle(Release(renamed.request))
        if not isinstance(own, Reply):
            return Judgement(frozenset(), frozenset())
        return _judged([*answers, (ROUTER, _wide(own.state)[..., -tokens:, :])], tolerated)

    def _renamed(self, whole: Hop) -> Hop:
        """All tokens up to those of a hop as a request of its own."""
        return replace(whole, request=f"{whole.request}/compared-{next(self._numbers)}", number=0, fresh=True)

    async def _again(self, node: str, whole: Hop, tokens: int) -> Tensor | None:
        """What a node answers for the last `tokens` when it is given all of them under another name."""
        response = await self.calling.once(node, self._renamed(whole), leaves=True)
        return _wide(response.state)[..., -tokens:, :] if isinstance(response, Reply) else None


def _judged(answers: Sequence[tuple[str, Tensor]], tolerated: float, outside: Collection[str] = ()) -> Judgement:
    differences = [[relative_difference(left, right) for _, right in answers] for _, left in answers]
    return judge([name for name, _ in answers], differences, tolerated, outside)


def _kind(hop: Hop) -> Kind:
    return tuple(visit.layer for visit in hop.visits), hop.fresh


def _wide(array: Array) -> Tensor:
    """The state, in float32 or wider."""
    state = to_tensor(array)
    return state.to(torch.promote_types(state.dtype, torch.float32))
