"""Calls of nodes: with a deadline, perhaps with a second node asked as well, and with a look at what comes back."""

from __future__ import annotations

import asyncio
import secrets
from itertools import count

import torch

from layerwise.errors import SwarmError
from layerwise.swarm.deadlines import HedgeBudget
from layerwise.swarm.messages import (
    Corrupt,
    Done,
    Failure,
    Hop,
    Late,
    Message,
    Pass,
    Release,
    RemoteVisit,
    Reply,
    Response,
    Transport,
)
from layerwise.swarm.node_records import NodeRecords
from layerwise.swarm.request import SwarmRequest
from layerwise.swarm.settings import SwarmSettings
from layerwise.swarm.wire import to_tensor

TICK = 0.005
"""Seconds in which an answer that has arrived in time is taken in."""


class Calling:
    """Sends messages to nodes and keeps account of how each answers."""

    def __init__(self, transport: Transport, members: NodeRecords, settings: SwarmSettings) -> None:
        self.transport = transport
        self.members = members
        self.settings = settings
        self.hedges = HedgeBudget()
        self._checks = secrets.token_hex(8), count()

    async def send(self, node: str, message: Message) -> Response:
        """A message other than a hop, with the deadline of a first hop."""
        return await self._within(node, message, self.settings.first_deadline)

    async def hop(self, node: str, hop: Hop, session: SwarmRequest) -> Reply | Failure:
        """The answer to a hop within the node's deadline; for a single pass, that of a replica if it is faster."""
        hedged = session.one_pass and self.settings.hedging
        replicas = self.members.holders({visit.layer for visit in hop.visits}, node) if hedged else []
        if not replicas:
            return await self._hop(node, hop)
        member = self.members[node]
        first = asyncio.ensure_future(self._hop(node, hop))
        await asyncio.wait({first}, timeout=member.latencies.hedge_after(hop.work))
        if first.done() or not self.hedges.take():
            return await first
        second = asyncio.ensure_future(self._hop(replicas[0], hop))
        done, pending = await asyncio.wait({first, second}, return_when=asyncio.FIRST_COMPLETED)
        if not any(isinstance(task.result(), Reply) for task in done) and pending:
            done, pending = await asyncio.wait(pending)
        for task in pending:
            task.cancel()
        answers = [task.result() for task in (first, second) if task.done() and not task.cancelled()]
        return next((answer for answer in answers if isinstance(answer, Reply)), answers[0])

    async def check(self, node: str, visits: tuple[RemoteVisit, ...], sample: Pass) -> Reply | Failure:
        """Whether a node can compute: a hop through `visits` of a request of its own."""
        process, numbers = self._checks
        return await self.once(node, Hop(f"check-{process}-{next(numbers)}", 0, visits, (sample,), fresh=True))

    async def once(self, node: str, hop: Hop) -> Reply | Failure:
        """The answer to a hop of a request that has no other."""
        response = await self._hop(node, hop)
        if isinstance(response, Reply):
            await self._within(node, Release(hop.request), self.settings.first_deadline)
        return response

    async def _hop(self, node: str, hop: Hop) -> Reply | Failure:
        member = self.members[node]
        self.hedges.call()
        # What waits at the node runs first.
        deadline = member.latencies.deadline(hop.work * (1 + member.waiting), self.members.latencies)
        loop = asyncio.get_running_loop()
        began = loop.time()
        member.waiting += 1
        try:
            response = await self._within(node, hop, deadline)
        finally:
            member.waiting -= 1
        if isinstance(response, Reply):
            flaw = _flaw(hop, response)
            if flaw is None:
                member.observe(loop.time() - began, response.seconds, hop)
                self.members.latencies.record(loop.time() - began, hop.work)
                return response
            response = Corrupt(node, flaw)
        elif isinstance(response, Done):
            response = Corrupt(node, "answered a hop as if it were no hop")
        member.missed(loop.time() - began, hop)
        return response

    async def _within(self, node: str, message: Message, seconds: float) -> Response:
        """The node's answer, or `Late`. Time in which this process was busy otherwise is not held against the node."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        answer = asyncio.ensure_future(self.transport.call(node, message))
        try:
            await asyncio.wait({answer}, timeout=seconds)
            if not answer.done():
                await asyncio.wait({answer}, timeout=loop.time() - began - seconds + TICK)
            return answer.result() if answer.done() else Late(node, seconds)
        finally:
            answer.cancel()


def _flaw(hop: Hop, reply: Reply) -> str | None:
    """What is wrong with a reply by itself, in words; `None` for one that can be meant."""
    requested = (hop.request, hop.number, hop.passes[-1].index)
    if (reply.request, reply.number, reply.index) != requested:
        return f"answered hop {reply.number} of {reply.request} when asked for hop {hop.number} of {hop.request}"
    if len(reply.states) != (len(hop.passes) if hop.every else 1):
        return f"returned {len(reply.states)} states for {len(hop.passes)} passes"
    for state, given in zip(reply.states[::-1], hop.passes[::-1], strict=False):
        if (state.shape, state.dtype) != (given.state.shape, given.state.dtype):
            return f"returned a state of {state.shape} {state.dtype} for one of {given.state.shape} {given.state.dtype}"
        try:
            if not torch.isfinite(to_tensor(state)).all():
                return "returned numbers that are not finite"
        except SwarmError as error:
            return str(error)
    return None
