"""The router sends the states of a request from node to node.

When a node fails, the nodes that are left compute all tokens so far again, in one pass. A late node is replaced only if
another is free. Without a replica of a layer the plan continues without it, down to the quorum.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from weakref import WeakSet

import torch
from torch import Tensor

from layerwise.errors import BelowQuorumError
from layerwise.plan import Step
from layerwise.stack import Capture
from layerwise.stack.executors.capture import Merger, follow
from layerwise.swarm.answer import Expected
from layerwise.swarm.calls import Calling
from layerwise.swarm.comparison import Restart, SpotChecks
from layerwise.swarm.live_plan import cut_at_seams
from layerwise.swarm.messages import Array, Hop, RemoteLayer, RemoteVisit, Reply
from layerwise.swarm.node_records import NodeRecord
from layerwise.swarm.nodes.node import Node
from layerwise.swarm.request import SwarmRequest
from layerwise.swarm.route import Leg, Uncovered, cheapest
from layerwise.swarm.settings import Quorum
from layerwise.swarm.wire import encode, to_array, to_tensor

MOST_FAILURES = 3
"""Hops of one pass that a node may fail before the pass goes on without it."""


class Router:
    """Runs the passes of requests over nodes. `expected` says what a set of missing layers costs. A `referee` holds all
    layers, and is asked where nodes contradict each other."""

    def __init__(
        self,
        calling: Calling,
        quorum: Quorum,
        expected: Callable[[frozenset[int]], Expected],
        referee: Node,
    ) -> None:
        self.calling = calling
        self.members = calling.members
        self.settings = settings = calling.settings
        self.quorum = quorum
        self.expected = expected
        self.checks = SpotChecks(calling, settings.spot_share, referee)
        self.sessions: WeakSet[SwarmRequest] = WeakSet()

    async def forward(self, session: SwarmRequest, captured: Capture) -> Tensor:
        """Run one more pass, and return its state. Raises `BelowQuorumError` if too few layers are left."""
        self.sessions.add(session)
        tokens = captured.state.shape[1] if captured.state.ndim > 2 else None
        self._rejoin(session)
        while True:
            if session.must_restart:
                if session.index:
                    text = f"{session.tokens} new tokens and the prompt are computed again"
                    self.members.note("replayed", text, request=session.request)
                captured = session.restart()
            try:
                final = await self._walk(session, captured)
            except Restart:
                session.must_restart = True
            if not session.must_restart:
                break
        session.index += 1
        session.written.append(session.live)
        session.failures.clear()
        state = to_tensor(final, captured.state.device)
        return state if tokens is None else state[:, -tokens:]

    def release(self, session: SwarmRequest) -> None:
        """Tell every node that was sent a part of the request to forget it; nobody waits for that."""
        self.checks.release(session)
        for node in sorted(session.touched):
            self.calling.begin(self.calling.release(node, session.key))

    # -- one pass -------------------------------------------------------------------------------------------------

    async def _walk(self, session: SwarmRequest, captured: Capture) -> Array:
        state, after, groups = to_array(captured.state), -1, list[Merger]()
        while True:
            visits = session.live.visits
            position = next((number for number, visit in enumerate(visits) if visit.slot > after), None)
            if position is None:
                return state
            leg = self._leg(session, position, in_group=bool(groups))
            if leg is None:
                continue
            given = encode(captured, [visit.layer.number for visit in leg.visits], session.index, state)
            reached = await self._hop(session, leg.node, Hop(session.key, 0, leg.visits, given))
            if reached is not None:
                state = _folded(session, position, leg, state, reached, groups)
                after = leg.visits[-1].slot

    def _leg(self, session: SwarmRequest, position: int, *, in_group: bool) -> Leg | None:
        """Return what to run next, or None once lost layers have left the plan. Raises `Restart` if that takes one."""
        visits = session.live.visits[position:]
        leg = next((leg for leg in session.legs if leg.visits[0] == visits[0]), None)
        if leg is not None and leg.node not in session.failures and self._holds(leg):
            return leg
        if session.index:
            lost = {visit.layer for visit in leg.visits} if leg is not None else set()
            is_clean = not in_group and not self.settings.replacements and self.settings.on_loss == "keep"
            if not is_clean or not lost or lost & self.members.live_layers():
                raise Restart
            self._lose(session, lost)
            return None
        route = cheapest(visits, self._usable(session, visits), asyncio.get_running_loop().time())
        if isinstance(route, Uncovered):
            self._lose(session, {visit.layer for visit in route.visits})
            if in_group or self.settings.on_loss == "recompute":  # what came before may have run a lost layer
                raise Restart
            return None
        before = (leg for leg in session.legs if leg.visits[-1].slot < visits[0].slot)
        route = cut_at_seams(route, session.live)
        session.legs = (*before, *route)
        return route[0]

    def _holds(self, leg: Leg) -> bool:
        member = self.members[leg.node]
        return member.state == "live" and all(visit.layer in member.layers for visit in leg.visits)

    def _usable(self, session: SwarmRequest, visits: Sequence[RemoteVisit]) -> list[NodeRecord]:
        without = frozenset(session.failures)
        if not {visit.layer for visit in visits} <= self.members.live_layers(without):
            without = _exhausted_nodes(session)
        return self.members.live(without)

    # -- one hop --------------------------------------------------------------------------------------------------

    async def _hop(self, session: SwarmRequest, node: str, hop: Hop) -> Array | None:
        def may_leave() -> bool:
            others = self.members.live_layers({node, *session.failures})
            return {visit.layer for visit in hop.visits} <= others

        session.touched.add(node)
        response = await self.calling.hop(node, hop, may_leave, session.request)
        if not isinstance(response, Reply):
            session.failures[node] += 1
            return None
        wrong = await self.checks.find_wrong(session, node, hop, response)
        for each in wrong:
            for other in self.sessions:
                other.doubt(each)
        if node in wrong:
            return None
        if node not in session.used:
            session.used[node] = session.tokens
            self.members[node].served.append(session.request)
        return response.state

    # -- loss and return ------------------------------------------------------------------------------------------

    def _lose(self, session: SwarmRequest, lost: Collection[RemoteLayer]) -> None:
        live = self.members.live_layers(_exhausted_nodes(session))
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
        if not back:
            return
        for layer in back:
            session.replaced.pop(layer, None)
        self._settle(session, session.live.missing - back)
        names = ", ".join(layer.name for layer in sorted(back))
        self.members.note("returned", f"layer {names} runs again", request=session.request)
        session.must_restart |= session.index > 0

    def _settle(self, session: SwarmRequest, missing: frozenset[RemoteLayer]) -> None:
        numbers = frozenset(layer.number for layer in missing)
        left = frozenset(session.numbers) - numbers
        expected = self.expected(numbers)
        verdict = self.quorum.verdict(left, numbers, expected)
        if verdict is not None:
            self.members.note("refused", verdict, request=session.request)
            raise BelowQuorumError(verdict)
        session.lose(missing)
        if missing:
            names = ", ".join(layer.name for layer in sorted(missing))
            self.members.note("degraded", f"goes on without layer {names}", request=session.request)


def _exhausted_nodes(session: SwarmRequest) -> frozenset[str]:
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
