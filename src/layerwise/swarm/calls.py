"""Calls of nodes: timeouts, health checks, and validation of the replies.

A node runs one call at a time. It is late when no reply has come by its deadline: a request may then move to a replica,
and the node is checked on a sample. It is given up only when that check times out, too.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import replace
from itertools import count
from typing import Any

import torch

from layerwise.errors import SwarmError
from layerwise.swarm.hop_queue import HopQueue
from layerwise.swarm.messages import (
    Corrupt,
    Done,
    Failure,
    Gone,
    Hop,
    Late,
    Pass,
    Release,
    RemoteVisit,
    Reply,
    Response,
    Transport,
)
from layerwise.swarm.node_records import NodeRecord, NodeRecords
from layerwise.swarm.settings import SwarmSettings
from layerwise.swarm.wire import selected, to_tensor

TICK = 0.005
"""Seconds in which an answer that has arrived in time is taken in."""

LOOK = 0.05
"""Seconds between two looks for a replica that is free, while a node is late."""


class Calling:
    """Sends messages to nodes and keeps account of how each answers. With the `sample`, a small pass through all
    layers, a node shows that it computes."""

    def __init__(self, transport: Transport, members: NodeRecords, settings: SwarmSettings, sample: Pass) -> None:
        self.transport = transport
        self.members = members
        self.settings = settings
        self._sample = sample
        self._checks = f"check-{secrets.token_hex(8)}-"  # no client can call its request so
        self._numbers, self._order = count(), count()
        self._queues: dict[str, HopQueue] = {}
        self._tasks: set[asyncio.Task[object]] = set()

    async def hop(self, node: str, hop: Hop, may_leave: Callable[[], bool], request: str = "") -> Reply | Failure:
        member = self.members[node]
        hop = replace(hop, number=next(self._numbers))
        seconds, response = await self._answer(member, hop, may_leave, request)
        if isinstance(response, Reply):
            flaw = _flaw(hop, response)
            if flaw is None:
                member.observe(seconds, response, hop)
                self.members.latencies.record(seconds, hop.work)
                return response
            response = Corrupt(node, flaw)
        elif isinstance(response, Done):
            response = Corrupt(node, "answered a hop as if it were no hop")
        member.failures += 1
        if isinstance(response, Gone):
            self.members.change(node, "gone", "lost", f"{node} is gone: {response.reason}")
        elif not isinstance(response, Late) and not self._is_check(hop):
            self.begin(self.check(member))
        return response

    async def once(self, node: str, hop: Hop, *, leaves: bool = False) -> Reply | Failure:
        try:
            return await self.hop(node, hop, lambda: leaves)
        finally:
            self.begin(self.release(node, hop.request))

    async def check(self, member: NodeRecord) -> Reply | Failure | None:
        visits = tuple(RemoteVisit(slot, layer) for slot, layer in enumerate(sorted(member.layers)) if not layer.source)
        if not visits:
            return None
        arguments = selected(self._sample.arguments, [visit.layer.number for visit in visits])
        name = f"{self._checks}{next(self._numbers)}"
        given = Pass(0, self._sample.state, arguments)
        response = await self.once(member.name, Hop(name, 0, visits, given, fresh=True))
        if isinstance(response, Reply):
            self.members.change(member.name, "live", "returned", f"{member.name} computes again")
        elif not isinstance(response, Late | Gone):
            self.members.change(member.name, "suspected", "lost", f"{member.name}: {response.reason}")
        return response

    def _is_check(self, hop: Hop) -> bool:
        return hop.request.startswith(self._checks)

    async def release(self, node: str, request: str) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(self.members[node].latencies.patience()):
                await self.transport.call(node, [Release(request)])

    def begin(self, work: Coroutine[Any, Any, object]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _answer(
        self, member: NodeRecord, hop: Hop, may_leave: Callable[[], bool], request: str
    ) -> tuple[float, Response]:
        """The node's answer and how long it took; `Late` if the request leaves it, or the hop or node is lost.

        A hop is lost if the node has answered a later one. Time in which this process was busy does not count.
        """
        clock = asyncio.get_running_loop().time
        took = 0.0
        queued = self._queue(member.name).put(hop, at_once=self._is_check(hop))
        answer = queued.answer

        def ended(done: asyncio.Future[Response]) -> None:
            nonlocal took
            if done.cancelled():
                del member.owed[hop.number]
            else:
                took = member.hear(hop.number, queued.order, clock())

        answer.add_done_callback(ended)
        member.owed[hop.number] = (clock(), hop.work)
        overtaken: float | None = None
        noted = not request
        try:
            while True:
                now, work = clock(), member.oldest_work
                deadline = member.latencies.deadline(work, self.members.latencies)
                patience, silent = member.latencies.patience(work), member.silent(now)
                if -1 < queued.order < member.answered and overtaken is None:
                    overtaken = now
                if silent >= patience:
                    text = f"{member.name} has answered nothing for {silent:.2f} s"
                    self.members.change(member.name, "suspected", "late", text)
                if silent >= patience or (overtaken is not None and now - overtaken >= deadline):
                    answer.cancel()
                    return 0.0, Late(member.name, silent)
                if silent >= deadline:
                    if not noted:
                        noted, text = True, f"{member.name} did not answer within {silent:.2f} s"
                        self.members.note("late", text, node=member.name, request=request)
                    if may_leave():
                        return 0.0, Late(member.name, silent)
                    if silent >= 2 * member.probed:
                        member.probed = silent
                        self.begin(self.check(member))
                wait = deadline - silent if silent < deadline else min(LOOK, patience - silent)
                await asyncio.wait({answer}, timeout=wait)
                if not answer.done():
                    await asyncio.wait({answer}, timeout=clock() - now - wait + TICK)
                if answer.done():
                    return took, answer.result()
        finally:
            if queued.order < 0:
                answer.cancel()
            elif not answer.done():  # what the node has begun it ends; if nothing ever comes, the next hops are sent
                asyncio.get_running_loop().call_later(member.latencies.patience(hop.work), answer.cancel)

    def _queue(self, node: str) -> HopQueue:
        return self._queues.setdefault(node, HopQueue(node, self.transport.call, self._order))


def _flaw(hop: Hop, reply: Reply) -> str | None:
    requested = (hop.request, hop.number, hop.given.index)
    if (reply.request, reply.number, reply.index) != requested:
        return f"answered hop {reply.number} of {reply.request} when asked for hop {hop.number} of {hop.request}"
    state, given = reply.state, hop.given.state
    if (state.shape, state.dtype) != (given.shape, given.dtype):
        return f"returned a state of {state.shape} {state.dtype} for one of {given.shape} {given.dtype}"
    try:
        if not torch.isfinite(to_tensor(state)).all():
            return "returned numbers that are not finite"
    except SwarmError as error:
        return str(error)
    return None
