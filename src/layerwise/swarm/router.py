"""The router sends the hidden states of a request from node to node.

When a node fails, the remaining nodes recompute all tokens in one pass. A late node is replaced only if another node
holds its layers. A layer without a live replica is skipped as long as the quorum is met.
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
from layerwise.swarm.answer import ExpectedCost
from layerwise.swarm.calls import NodeClient
from layerwise.swarm.checks import RestartNeededError, SpotChecks
from layerwise.swarm.messages import Array, RemoteLayer, RemoteVisit, Reply, RunLayers
from layerwise.swarm.node_records import NodeRecord
from layerwise.swarm.nodes.node import Node
from layerwise.swarm.request import NoRoute, Segment, SwarmRequest, cut_at_boundaries, find_route
from layerwise.swarm.settings import Quorum
from layerwise.swarm.wire import encode, to_array, to_tensor

MAX_FAILURES = 3
"""Number of failed calls of a node in one pass after which the pass continues without this node."""


class Router:
    """Runs forward passes on nodes.

    `estimate_cost` returns the cost of missing layers. If two nodes return different results, `referee` computes which
    one is right.
    """

    def __init__(
        self,
        client: NodeClient,
        quorum: Quorum,
        estimate_cost: Callable[[frozenset[int]], ExpectedCost],
        referee: Node,
    ) -> None:
        self.client = client
        self.members = client.members
        self.settings = settings = client.settings
        self.quorum = quorum
        self.estimate_cost = estimate_cost
        self.checks = SpotChecks(client, settings.spot_share, referee)
        self.sessions: WeakSet[SwarmRequest] = WeakSet()

    async def forward(self, session: SwarmRequest, captured: Capture) -> Tensor:
        """Run the next pass and return its hidden state `(batch, seq, hidden)`.

        Raises `BelowQuorumError` if too few layers are live.
        """
        self.sessions.add(session)
        tokens = captured.state.shape[1] if captured.state.ndim > 2 else None
        self._restore_layers(session)
        while True:
            if session.must_restart:
                if session.index:
                    text = f"the prompt and {session.tokens} new tokens are recomputed"
                    self.members.note("replayed", text, request=session.request)
                captured = session.restart()
            try:
                final = await self._run_pass(session, captured)
            except RestartNeededError:
                session.must_restart = True
            if not session.must_restart:
                break
        session.index += 1
        session.written.append(session.live)
        session.failures.clear()
        state = to_tensor(final, captured.state.device)
        return state if tokens is None else state[:, -tokens:]

    def release(self, session: SwarmRequest) -> None:
        """Tell all contacted nodes to forget the request, without waiting for them."""
        self.checks.release(session)
        for node in sorted(session.contacted):
            self.client.start_task(self.client.release(node, session.key))

    # -- one pass -------------------------------------------------------------------------------------------------

    async def _run_pass(self, session: SwarmRequest, captured: Capture) -> Array:
        state, after, groups = to_array(captured.state), -1, list[Merger]()
        while True:
            visits = session.live.visits
            position = next((number for number, visit in enumerate(visits) if visit.slot > after), None)
            if position is None:
                return state
            segment = self._next_segment(session, position, in_group=bool(groups))
            if segment is None:
                continue
            given = encode(captured, [visit.layer.number for visit in segment.visits], session.index, state)
            reached = await self._call(session, segment.node, RunLayers(session.key, 0, segment.visits, given))
            if reached is not None:
                state = _apply_group_step(session, position, segment, state, reached, groups)
                after = segment.visits[-1].slot

    def _next_segment(self, session: SwarmRequest, position: int, *, in_group: bool) -> Segment | None:
        visits = session.live.visits[position:]
        segment = next((segment for segment in session.segments if segment.visits[0] == visits[0]), None)
        if segment is not None and segment.node not in session.failures and self._is_usable(segment):
            return segment
        if session.index:
            lost = {visit.layer for visit in segment.visits} if segment is not None else set()
            can_continue = not in_group and not self.settings.replacements and self.settings.on_loss == "keep"
            if not can_continue or not lost or lost & self.members.live_layers():
                raise RestartNeededError
            self._drop_layers(session, lost)
            return None
        route = find_route(visits, self._find_usable_nodes(session, visits), asyncio.get_running_loop().time())
        if isinstance(route, NoRoute):
            self._drop_layers(session, {visit.layer for visit in route.visits})
            if in_group or self.settings.on_loss == "recompute":  # earlier steps may have used a lost layer
                raise RestartNeededError
            return None
        before = (segment for segment in session.segments if segment.visits[-1].slot < visits[0].slot)
        route = cut_at_boundaries(route, session.live)
        session.segments = (*before, *route)
        return route[0]

    def _is_usable(self, segment: Segment) -> bool:
        member = self.members[segment.node]
        return member.state == "live" and all(visit.layer in member.layers for visit in segment.visits)

    def _find_usable_nodes(self, session: SwarmRequest, visits: Sequence[RemoteVisit]) -> list[NodeRecord]:
        without = frozenset(session.failures)
        if not {visit.layer for visit in visits} <= self.members.live_layers(without):
            without = _exhausted_nodes(session)
        return self.members.live(without)

    # -- one call --------------------------------------------------------------------------------------------------

    async def _call(self, session: SwarmRequest, node: str, call: RunLayers) -> Array | None:
        def may_leave() -> bool:
            others = self.members.live_layers({node, *session.failures})
            return {visit.layer for visit in call.visits} <= others

        session.contacted.add(node)
        response = await self.client.call(node, call, may_leave, session.request)
        if not isinstance(response, Reply):
            session.failures[node] += 1
            return None
        wrong = await self.checks.find_wrong_nodes(session, node, call, response)
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

    def _drop_layers(self, session: SwarmRequest, lost: Collection[RemoteLayer]) -> None:
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
        self._set_missing(session, frozenset(missing))

    def _restore_layers(self, session: SwarmRequest) -> None:
        live = self.members.live_layers()
        back = {layer for layer in (*session.live.missing, *session.replaced) if layer in live}
        if not back:
            return
        for layer in back:
            session.replaced.pop(layer, None)
        self._set_missing(session, session.live.missing - back)
        names = ", ".join(layer.name for layer in sorted(back))
        self.members.note("returned", f"layer {names} runs again", request=session.request)
        session.must_restart |= session.index > 0

    def _set_missing(self, session: SwarmRequest, missing: frozenset[RemoteLayer]) -> None:
        numbers = frozenset(layer.number for layer in missing)
        live = frozenset(session.numbers) - numbers
        refusal = self.quorum.explain_refusal(live, numbers, self.estimate_cost(numbers))
        if refusal is not None:
            self.members.note("refused", refusal, request=session.request)
            raise BelowQuorumError(refusal)
        session.set_missing(missing)
        if missing:
            names = ", ".join(layer.name for layer in sorted(missing))
            self.members.note("degraded", f"continuing without layer {names}", request=session.request)


def _exhausted_nodes(session: SwarmRequest) -> frozenset[str]:
    return frozenset(node for node, failures in session.failures.items() if failures >= MAX_FAILURES)


def _apply_group_step(
    session: SwarmRequest, position: int, segment: Segment, state: Array, reached: Array, groups: list[Merger]
) -> Array:
    first, last = session.live.steps[position], session.live.steps[position + len(segment.visits) - 1]
    if not (first.opens or last.closes):
        return reached
    step = Step(first.layer, opens=first.opens, closes=last.closes)
    with torch.no_grad():
        return to_array(follow(step, to_tensor(state), to_tensor(reached), groups))
