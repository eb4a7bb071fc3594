"""Calls to nodes, with batching, deadlines, health checks, and validation of the replies.

A node runs one call at a time; calls that arrive in the meantime form the next batch. If a node misses its deadline,
the request may move to another node, and a health check is sent. If the health check ends before the call, the call is
abandoned.
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
    Late,
    Refused,
    Release,
    RemoteVisit,
    Reply,
    Response,
    RunLayers,
    Transport,
)
from layerwise.swarm.node_records import NodeRecord, NodeRecords
from layerwise.swarm.nodes.node import is_one_token
from layerwise.swarm.settings import SwarmSettings
from layerwise.swarm.wire import encode, to_tensor

MAX_BATCH = 64

GRACE_SECONDS = 0.005

POLL_SECONDS = 0.05
"""Seconds between two searches for a free replica while a node is late."""


@dataclass(eq=False, slots=True)
class _Queued:
    call: RunLayers
    answer: asyncio.Future[tuple[float, Response]]


class NodeClient:
    """Sends calls to all nodes. A health check runs `sample`, a small forward pass, through the layers of a node."""

    def __init__(self, transport: Transport, members: NodeRecords, settings: SwarmSettings, sample: Capture) -> None:
        self.transport = transport
        self.members = members
        self.settings = settings
        self._sample = sample
        self._numbers = count()
        self._queues: dict[str, list[_Queued]] = {}
        self._tasks: set[asyncio.Task[Any]] = set()

    async def call(
        self, node: str, call: RunLayers, may_leave: Callable[[], bool], request: str = ""
    ) -> Reply | Failure:
        """Return the node's reply, or `Late` if it missed its deadline and `may_leave()` is true."""
        member = self.members[node]
        call = replace(call, number=next(self._numbers))
        response = self._record(member, call, *await self._answer(member, call, may_leave, request))
        if not isinstance(response, Reply | Late | Gone):
            self.start_task(self.check(member))
        return response

    async def check(self, member: NodeRecord) -> Reply | Failure | None:
        visits = tuple(RemoteVisit(slot, layer) for slot, layer in enumerate(sorted(member.layers)) if not layer.source)
        if not visits:
            return None
        given = encode(self._sample, [visit.layer.number for visit in visits])
        call = RunLayers(f"check-{secrets.token_hex(8)}", next(self._numbers), visits, given)
        clock = asyncio.get_running_loop().time
        began, timeout = clock(), member.latencies.timeout(call.work)
        response: Response
        try:
            async with asyncio.timeout(timeout):
                (response,) = await self.transport.call(member.name, [call])
        except TimeoutError:
            response = Late(member.name, timeout)
        response = self._record(member, call, clock() - began, response)
        if isinstance(response, Reply):
            self.members.change(member.name, "live", "returned", f"{member.name} computes again")
        elif isinstance(response, Late):
            text = f"{member.name} has not answered for {response.seconds:.2f} s"
            self.members.change(member.name, "suspected", "late", text)
        elif not isinstance(response, Gone):
            self.members.change(member.name, "suspected", "lost", f"{member.name}: {response.reason}")
        self.start_task(self.release(member.name, call.request))
        return response

    async def release(self, node: str, request: str) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(self.members[node].latencies.timeout()):
                await self.transport.call(node, [Release(request)])

    def start_task(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _record(self, member: NodeRecord, call: RunLayers, seconds: float, response: Response) -> Reply | Failure:
        if isinstance(response, Reply):
            flaw = _find_flaw(call, response)
            if flaw is None:
                member.observe(seconds, response, call)
                self.members.latencies.record(seconds, call.work)
                return response
            response = Refused(member.name, flaw)
        elif isinstance(response, Done):
            response = Refused(member.name, "did not return a state")
        member.failures += 1
        if isinstance(response, Gone):
            self.members.change(member.name, "gone", "lost", f"{member.name} failed: {response.reason}")
        return response

    async def _answer(
        self, member: NodeRecord, call: RunLayers, may_leave: Callable[[], bool], request: str
    ) -> tuple[float, Response]:
        clock = asyncio.get_running_loop().time
        queued = _Queued(call, asyncio.get_running_loop().create_future())
        queue = self._queues.setdefault(member.name, [])
        queue.append(queued)
        if member.began is None:
            member.began, member.work = clock(), call.work
            self.start_task(self._send(member, queue))
        member.waiting += 1
        noted = not request
        try:
            while not queued.answer.done():
                silence = member.silence(clock())
                deadline = member.latencies.deadline(member.work, self.members.latencies)
                if silence >= deadline:
                    if not noted:
                        noted, text = True, f"{member.name} did not answer within {silence:.2f} s"
                        self.members.note("late", text, node=member.name, request=request)
                    if may_leave():
                        return 0.0, Late(member.name, silence)
                await _wait(queued.answer, deadline - silence if silence < deadline else POLL_SECONDS)
            return queued.answer.result()
        finally:
            member.waiting -= 1
            queued.answer.cancel()

    async def _send(self, member: NodeRecord, queue: list[_Queued]) -> None:
        clock = asyncio.get_running_loop().time
        try:
            while waiting := [each for each in queue if not each.answer.done()]:
                first, together = waiting[0], waiting[:1]
                if is_one_token(first.call):
                    together = [each for each in waiting if _can_join(first.call, each.call)][:MAX_BATCH]
                queue[:] = [each for each in waiting if each not in together]
                member.began, member.work = clock(), first.call.work
                responses = await self._call(member, [each.call for each in together])
                seconds = clock() - member.began
                for each, response in zip(together, responses, strict=True):
                    if not each.answer.done():
                        each.answer.set_result((seconds, response))
        finally:
            queue.clear()
            member.began = None

    async def _call(self, member: NodeRecord, calls: Sequence[RunLayers]) -> Sequence[Response]:
        """Send one batch. It counts as lost if a later health check ends first."""
        clock = asyncio.get_running_loop().time
        call = asyncio.ensure_future(self.transport.call(member.name, calls))
        checks: set[asyncio.Future[Any]] = set()
        try:
            deadline = member.latencies.deadline(member.work, self.members.latencies)
            await _wait(call, deadline)
            while not call.done() and not any(check.done() for check in checks):
                checks.add(self.start_task(self.check(member)))  # repeated, since its answer may be lost too
                await asyncio.wait(
                    {call, *checks}, timeout=member.silence(clock()), return_when=asyncio.FIRST_COMPLETED
                )
            await _wait(call, deadline)
            if call.done():
                return call.result()
        except Exception as error:  # a transport may fail in any way
            return [Gone(member.name, str(error))] * len(calls)
        finally:
            call.cancel()
        return [Late(member.name, member.silence(clock()))] * len(calls)


async def _wait(answer: asyncio.Future[Any], seconds: float) -> None:
    """Wait up to `seconds` for an answer, not counting time in which this process is busy."""
    clock = asyncio.get_running_loop().time
    until = clock() + seconds
    await asyncio.wait({answer}, timeout=seconds)
    if not answer.done():
        await asyncio.wait({answer}, timeout=clock() - until + GRACE_SECONDS)


def _can_join(first: RunLayers, other: RunLayers) -> bool:
    return other.visits == first.visits and is_one_token(other)


def _find_flaw(call: RunLayers, reply: Reply) -> str | None:
    requested = (call.request, call.number, call.given.index)
    if (reply.request, reply.number, reply.index) != requested:
        return f"answered call {reply.number} of {reply.request} instead of call {call.number} of {call.request}"
    state, given = reply.state, call.given.state
    if (state.shape, state.dtype) != (given.shape, given.dtype):
        return f"returned a state of {state.shape} {state.dtype} instead of {given.shape} {given.dtype}"
    try:
        if not torch.isfinite(to_tensor(state)).all():
            return "returned values that are not finite"
    except SwarmError as error:
        return str(error)
    return None
