"""Calls of nodes: batches, deadlines, health checks, and validation of the replies.

A node has one call at a time; what gathers meanwhile is sent together. A node that has not answered by its deadline is
late: a request may then move to a replica, and the node is checked on a sample. It is given up only if that check times
out, too.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

import torch

from layerwise.errors import SwarmError
from layerwise.stack import Capture
from layerwise.swarm.messages import (
    Done,
    Failure,
    Gone,
    Hop,
    Late,
    Refused,
    Release,
    RemoteVisit,
    Reply,
    Response,
    Transport,
)
from layerwise.swarm.node_records import NodeRecord, NodeRecords
from layerwise.swarm.nodes.batch import is_one_token
from layerwise.swarm.settings import SwarmSettings
from layerwise.swarm.wire import encode, to_tensor

MOST_TOGETHER = 64

TICK = 0.005
"""Seconds in which an answer that has arrived in time is taken in."""

LOOK = 0.05
"""Seconds between two looks for a replica that is free, while a node is late."""


@dataclass(eq=False, slots=True)
class _Queued:
    hop: Hop
    answer: asyncio.Future[tuple[float, Response]]


class Calling:
    """Sends messages to nodes and keeps account of how each answers. With the `sample`, a small pass through all
    layers, a node shows that it computes."""

    def __init__(self, transport: Transport, members: NodeRecords, settings: SwarmSettings, sample: Capture) -> None:
        self.transport = transport
        self.members = members
        self.settings = settings
        self._sample = sample
        self._numbers = count()
        self._queues: dict[str, list[_Queued]] = {}
        self._tasks: set[asyncio.Task[Any]] = set()

    async def hop(self, node: str, hop: Hop, may_leave: Callable[[], bool], request: str = "") -> Reply | Failure:
        """Return the node's answer, or `Late` if the node is late and the request `may_leave` it."""
        member = self.members[node]
        hop = replace(hop, number=next(self._numbers))
        response = self._heard(member, hop, *await self._answer(member, hop, may_leave, request))
        if not isinstance(response, Reply | Late | Gone):
            self.begin(self.check(member))
        return response

    async def check(self, member: NodeRecord) -> Reply | Failure | None:
        visits = tuple(RemoteVisit(slot, layer) for slot, layer in enumerate(sorted(member.layers)) if not layer.source)
        if not visits:
            return None
        given = encode(self._sample, [visit.layer.number for visit in visits])
        hop = Hop(f"check-{secrets.token_hex(8)}", next(self._numbers), visits, given)
        clock = asyncio.get_running_loop().time
        began, patience = clock(), member.latencies.patience(hop.work)
        response: Response
        try:
            async with asyncio.timeout(patience):
                (response,) = await self.transport.call(member.name, [hop])
        except TimeoutError:
            response = Late(member.name, patience)
        response = self._heard(member, hop, clock() - began, response)
        if isinstance(response, Reply):
            self.members.change(member.name, "live", "returned", f"{member.name} computes again")
        elif isinstance(response, Late):
            text = f"{member.name} has answered nothing for {response.seconds:.2f} s"
            self.members.change(member.name, "suspected", "late", text)
        elif not isinstance(response, Gone):
            self.members.change(member.name, "suspected", "lost", f"{member.name}: {response.reason}")
        self.begin(self.release(member.name, hop.request))
        return response

    async def release(self, node: str, request: str) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(self.members[node].latencies.patience()):
                await self.transport.call(node, [Release(request)])

    def begin(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _heard(self, member: NodeRecord, hop: Hop, seconds: float, response: Response) -> Reply | Failure:
        if isinstance(response, Reply):
            flaw = _flaw(hop, response)
            if flaw is None:
                member.observe(seconds, response, hop)
                self.members.latencies.record(seconds, hop.work)
                return response
            response = Refused(member.name, flaw)
        elif isinstance(response, Done):
            response = Refused(member.name, "answered a hop as if it were no hop")
        member.failures += 1
        if isinstance(response, Gone):
            self.members.change(member.name, "gone", "lost", f"{member.name} is gone: {response.reason}")
        return response

    async def _answer(
        self, member: NodeRecord, hop: Hop, may_leave: Callable[[], bool], request: str
    ) -> tuple[float, Response]:
        clock = asyncio.get_running_loop().time
        queued = _Queued(hop, asyncio.get_running_loop().create_future())
        queue = self._queues.setdefault(member.name, [])
        queue.append(queued)
        if member.began is None:
            member.began, member.work = clock(), hop.work
            self.begin(self._send(member, queue))
        member.waiting += 1
        noted = not request
        try:
            while not queued.answer.done():
                silent = member.silent(clock())
                deadline = member.latencies.deadline(member.work, self.members.latencies)
                if silent >= deadline:
                    if not noted:
                        noted, text = True, f"{member.name} did not answer within {silent:.2f} s"
                        self.members.note("late", text, node=member.name, request=request)
                    if may_leave():
                        return 0.0, Late(member.name, silent)
                await _wait(queued.answer, deadline - silent if silent < deadline else LOOK)
            return queued.answer.result()
        finally:
            member.waiting -= 1
            queued.answer.cancel()

    async def _send(self, member: NodeRecord, queue: list[_Queued]) -> None:
        clock = asyncio.get_running_loop().time
        try:
            while waiting := [each for each in queue if not each.answer.done()]:
                first, together = waiting[0], waiting[:1]
                if is_one_token(first.hop):
                    together = [each for each in waiting if _is_alike(first.hop, each.hop)][:MOST_TOGETHER]
                queue[:] = [each for each in waiting if each not in together]
                member.began, member.work = clock(), first.hop.work
                responses = await self._call(member, [each.hop for each in together])
                seconds = clock() - member.began
                for each, response in zip(together, responses, strict=True):
                    if not each.answer.done():
                        each.answer.set_result((seconds, response))
        finally:
            queue.clear()
            member.began = None

    async def _call(self, member: NodeRecord, hops: Sequence[Hop]) -> Sequence[Response]:
        """Send one call. A call is lost if the node answers a check in the meantime, and does not answer it."""
        clock = asyncio.get_running_loop().time
        call = asyncio.ensure_future(self.transport.call(member.name, hops))
        checks: set[asyncio.Future[Any]] = set()
        try:
            deadline = member.latencies.deadline(member.work, self.members.latencies)
            await _wait(call, deadline)
            while not call.done() and not any(check.done() for check in checks):
                checks.add(self.begin(self.check(member)))  # again after twice the silence: an answer may be lost
                await asyncio.wait({call, *checks}, timeout=member.silent(clock()), return_when=asyncio.FIRST_COMPLETED)
            await _wait(call, deadline)
            if call.done():
                return call.result()
        except Exception as error:  # a transport may fail in any way
            return [Gone(member.name, str(error))] * len(hops)
        finally:
            call.cancel()
        return [Late(member.name, member.silent(clock()))] * len(hops)


async def _wait(answer: asyncio.Future[Any], seconds: float) -> None:
    """Wait for an answer. Time in which this process is busy does not count."""
    clock = asyncio.get_running_loop().time
    until = clock() + seconds
    await asyncio.wait({answer}, timeout=seconds)
    if not answer.done():
        await asyncio.wait({answer}, timeout=clock() - until + TICK)


def _is_alike(first: Hop, other: Hop) -> bool:
    return other.visits == first.visits and is_one_token(other)


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
