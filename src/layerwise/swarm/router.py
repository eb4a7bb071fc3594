"""The router sends the states of a request from node to node, and reroutes the rest when a node fails.

The node that takes over replays the earlier passes. A late node is replaced only if another is free. Without a replica
of a layer the plan continues without it, down to the quorum.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from weakref import WeakSet

import torch
from torch import Tensor

from layerwise.errors import BelowQuorum
from layerwise.plan import Step
from layerwise.stack import Capture
from layerwise.stack.executors.state import Merger, follow
from layerwise.swarm.answer import Expected
from layerwise.swarm.calls import Calling
from layerwise.swarm.comparison import ReplicaComparison
from layerwise.swarm.live_plan import cut_at_seams
from layerwise.swarm.messages import Array, Hop, RemoteLayer, RemoteVisit, Reply
from layerwise.swarm.nodes.node import Node
from layerwise.swarm.request import RecordedPass, SwarmRequest
from layerwise.swarm.route import Leg, Offer, Uncovered, cheapest
from layerwise.swarm.settings import Quorum
from layerwise.swarm.wire import encode, parted, to_array, to_tensor

MOST_FAILURES = 3
"""Hops of one pass that a node may fail before the pass goes on without it."""


class _Lost(Exception):
    def __init__(self, layers: Collection[RemoteLayer]) -> None:
        self.layers = frozenset(layers)


class _BeginAgain(Exception):
    """All tokens so far are to be computed again."""


class Router:
    """Runs the passes of requests over nodes. `expected` says what a set of missing layers costs. A `referee` holds all
    layers, and is asked where nodes contradict each other."""

    def __init__(
        self,
        calling: Calling,
        quorum: Quorum,
        expected: Callable[[frozenset[int]], Expected],
        referee: Node | None = None,
    ) -> None:
        self.calling = calling
        self.members = calling.members
        self.settings = settings = calling.settings
        self.quorum = quorum
        self.expected = expected
        self.comparison = ReplicaComparison(calling, settings.spot_share, settings.seed, referee)
        self.sessions: WeakSet[SwarmRequest] = WeakSet()

    async def forward(self, session: SwarmRequest, captured: Capture) -> Tensor:
        """Run one more pass, and return its state. Raises `BelowQuorum` if too few layers are left."""
        self.sessions.add(session)
        tokens = captured.state.shape[1] if captured.state.ndim > 2 else None
        self._rejoin(session)
        captured = self._anew(session) if session.doubtful else captured
        while True:
            record = RecordedPass(len(session.passes), encode(captured.calls, session.numbers))
            try:
                final = await self._walk(session, record, to_array(captured.state))
                if not session.doubtful:
                    break
            except _BeginAgain:
                pass
            captured = self._anew(session)
        session.remember(record, self.settings.history_bytes)
        session.failures.clear()
        state = to_tensor(final, captured.state.device)
        return state if tokens is None else state[:, -tokens:]

    def release(self, session: SwarmRequest) -> None:
        """Tell every node that was sent a part of the request to forget it; nobody waits for that."""
        for node in sorted(session.touched):
            self.calling.begin(self.calling.release(node, session.key))

    def _anew(self, session: SwarmRequest) -> Capture:
        session.begin_again()
        return session.recapture()

    # -- one pass -------------------------------------------------------------------------------------------------

    async def _walk(self, session: SwarmRequest, record: RecordedPass, entering: Array) -> Array:
        state, after, groups = entering, None, list[Merger]()
        while True:
            position = self._position(session, after)
            if position == len(session.live.visits):
                break
            try:
                leg = self._leg(session, record, position)
            except _Lost as lost:
                self._lose(session, lost.layers)
                if self.settings.on_loss == "recompute" and not session.one_pass:
                    raise _BeginAgain from lost
                if groups:  # what a group merges is another thing now
                    state, after, groups = entering, None, []
                continue
            record.enter(after, leg.visits[0].slot, state)
            reached = await self._hop(session, record, leg, state)
            if reached is None:
                continue
            state = _folded(session, position, leg, state, reached, groups)
            after = leg.visits[-1].slot
        record.enter(after, len(session.requested.steps()) - 1, state)
        return state

    @staticmethod
    def _position(session: SwarmRequest, after: int | None) -> int:
        if after is None:
            return 0
        later = (number for number, visit in enumerate(session.live.visits) if visit.slot > after)
        return next(later, len(session.live.visits))

    def _leg(self, session: SwarmRequest, record: RecordedPass, position: int) -> Leg:
        leg = session.leg_at(position)
        if leg is not None and self._holds(leg):
            return leg
        session.legs = self._route(session, record, position)
        return session.legs[0]

    def _holds(self, leg: Leg) -> bool:
        member = self.members[leg.node]
        return member.state == "live" and all(visit.layer in member.layers for visit in leg.visits)

    def _route(self, session: SwarmRequest, record: RecordedPass, position: int) -> tuple[Leg, ...]:
        visits = session.live.visits[position:]
        offers = self._offers(session, visits)
        replay = {
            (offer.node, visit): record.index * offer.layer_seconds
            for offer in offers
            for visit in visits
            if record.index and session.warm.get((offer.node, visit), 0) != record.index
        }
        route = cheapest(visits, offers, replay)
        if isinstance(route, Uncovered):
            raise _Lost({visit.layer for visit in route.visits})
        return cut_at_seams(route, session.live)

    def _offers(self, session: SwarmRequest, visits: Sequence[RemoteVisit]) -> list[Offer]:
        needed = {visit.layer for visit in visits}
        without = frozenset(session.failures)
        if not needed <= self.members.live_layers(without):
            without = _worn(session)
        now = asyncio.get_running_loop().time()
        return [member.offer(now) for member in self.members.live(without)]

    # -- one hop --------------------------------------------------------------------------------------------------

    async def _hop(self, session: SwarmRequest, record: RecordedPass, leg: Leg, state: Array) -> Array | None:
        again = bool(record.index) and session.seen(leg) != record.index
        states = [state]
        if again:
            earlier = await self._entered(session, record, leg)
            if earlier is None:
                return None
            states = [*earlier, state]
        hop = Hop(session.key, 0, leg.visits, session.replay(record, leg.visits, states), again or record.index == 0)
        response = await self._called(session, record, leg, hop)
        if response is None:
            return None
        if again:
            text = f"{leg.node} ran the {len(states) - 1} passes before on {_named(leg.visits)}"
            self.members.note("replayed", text, node=leg.node, request=session.request)
        if not await self._believed(session, record, hop, response):
            return None
        self._uses(session, response.node)
        return parted(response.state, _tokens(states))[-1]

    def _uses(self, session: SwarmRequest, node: str) -> None:
        if node not in session.used:
            session.used[node] = session.tokens
            self.members[node].served.append(session.request)

    async def _called(self, session: SwarmRequest, record: RecordedPass, leg: Leg, hop: Hop) -> Reply | None:
        def may_leave() -> bool:
            others = self.members.live({leg.node, *session.failures})
            return {visit.layer for visit in leg.visits} <= frozenset().union(*(each.layers for each in others))

        session.touched.add(leg.node)
        response = await self.calling.hop(leg.node, hop, may_leave, session.request)
        if isinstance(response, Reply):
            session.warm.update({(response.node, visit): record.index + 1 for visit in leg.visits})
            session.touched.add(response.node)
            return response
        session.forget_node(leg.node)
        session.failures[leg.node] += 1
        return None

    async def _believed(self, session: SwarmRequest, record: RecordedPass, hop: Hop, reply: Reply) -> bool:
        """Compare an answer if it is due. Raises `_BeginAgain` if earlier answers of the node may be wrong."""
        if not self.comparison.chooses(reply.node, begins=record.index == 0):
            return True
        whole = hop
        if not hop.fresh:
            known = self._known(session, hop.visits[0].slot)
            if not session.history_whole or known is None:
                return True
            whole = replace(hop, given=session.replay(record, hop.visits, [*known, hop.given.state]))
        wrong = await self.comparison.wrong(reply.node, hop, whole, reply)
        for node in wrong:
            for other in self.sessions:
                other.doubt(node)
        if session.doubtful:
            raise _BeginAgain
        return reply.node not in wrong

    async def _entered(self, session: SwarmRequest, record: RecordedPass, leg: Leg) -> list[Array] | None:
        """The states that entered `leg` in all earlier passes, recomputed where missing; `None` if a node fails."""
        if not session.history_whole:
            raise _BeginAgain
        slot = leg.visits[0].slot
        known = self._known(session, slot)
        if known is not None:
            return known
        position = session.live.visits.index(leg.visits[0])
        before = next((each for each in session.legs if each.visits[-1] == session.live.visits[position - 1]), None)
        if before is None:  # what led here was routed before; the states have to be made from the tokens
            raise _BeginAgain
        states = await self._entered(session, record, before)
        entered = record.entered(before.visits[0].slot, session.missing_slots())
        if states is None or entered is None:
            return None
        states = [*states, entered]
        hop = Hop(session.key, 0, before.visits, session.replay(record, before.visits, states), fresh=True)
        response = await self._called(session, record, before, hop)
        if response is None:
            return None
        self._uses(session, response.node)
        earlier = parted(response.state, _tokens(states))[:-1]
        for each, state in zip(session.passes, earlier, strict=True):
            each.entering[slot] = state
        return earlier

    @staticmethod
    def _known(session: SwarmRequest, slot: int) -> list[Array] | None:
        known = [each.entered(slot, session.missing_slots()) for each in session.passes]
        return None if None in known else [state for state in known if state is not None]

    # -- loss and return ------------------------------------------------------------------------------------------

    def _lose(self, session: SwarmRequest, lost: frozenset[RemoteLayer]) -> None:
        live = self.members.live_layers(_worn(session))
        missing = set(session.live.missing)
        for layer in session.layers:
            if session.replaced.get(layer, layer) not in lost:
                continue
            others = (RemoteLayer(layer.number, source) for source in self.settings.replacements)
            other = next((each for each in others if each in live), None)
            if other is None:
                missing.add(layer)
            else:
                session.replaced[layer] = other
        self._settle(session, frozenset(missing))

    def _rejoin(self, session: SwarmRequest) -> None:
        live = self.members.live_layers()
        back = {layer for layer in (*session.live.missing, *session.replaced) if layer in live}
        if not back or not session.history_whole:
            return
        for layer in back:
            session.replaced.pop(layer, None)
        self._settle(session, session.live.missing - back)
        names = ", ".join(layer.name for layer in sorted(back))
        self.members.note("returned", f"layer {names} runs again", request=session.request)
        session.doubtful |= bool(session.passes) and self.settings.on_loss == "recompute"

    def _settle(self, session: SwarmRequest, missing: frozenset[RemoteLayer]) -> None:
        numbers = frozenset(layer.number for layer in missing)
        left = frozenset(session.numbers) - numbers
        expected = self.expected(numbers)
        verdict = self.quorum.verdict(left, numbers, expected)
        if verdict is not None:
            self.members.note("refused", verdict, request=session.request)
            raise BelowQuorum(verdict)
        session.lose(missing)
        if missing:
            names = ", ".join(layer.name for layer in sorted(missing))
            self.members.note("degraded", f"goes on without layer {names}", request=session.request)


def _worn(session: SwarmRequest) -> frozenset[str]:
    return frozenset(node for node, failures in session.failures.items() if failures >= MOST_FAILURES)


def _folded(
    session: SwarmRequest, position: int, leg: Leg, state: Array, reached: Array, groups: list[Merger]
) -> Array:
    first, last = session.live.steps[position], session.live.steps[position + len(leg.visits) - 1]
    if not (first.opens or last.closes):
        return reached
    step = Step(first.layer, opens=first.opens, closes=last.closes)
    with torch.no_grad():
        return to_array(follow(step, to_tensor(state), to_tensor(reached), groups))


def _tokens(states: Sequence[Array]) -> list[int]:
    return [state.shape[-2] for state in states]


def _named(visits: Sequence[RemoteVisit]) -> str:
    names = [visit.name for visit in visits]
    return f"layer {names[0]}" if len(names) == 1 else f"layers {names[0]} to {names[-1]}"
