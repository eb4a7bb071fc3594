"""Limits on running and queued requests, and their deadlines, also during shutdown."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from typing import TypeVar

from layerwise.errors import OverloadedError
from layerwise.swarm.serve.responses import Refusal

T = TypeVar("T")


class RequestDeadline:
    """A moment that a request's waiting ends at. It may come nearer while something is waited for."""

    def __init__(self, seconds: float) -> None:
        self.at = asyncio.get_running_loop().time() + seconds
        self.refusal = Refusal(504, "deadline_exceeded", f"the request was not answered whole within {seconds:g} s")
        self._waiting: asyncio.Timeout | None = None

    async def wait(self, work: Awaitable[T]) -> T:
        """The result of `work`, which is cancelled at the deadline. Raises the `Refusal` then."""
        try:
            async with asyncio.timeout_at(self.at) as self._waiting:
                return await work
        except TimeoutError:
            if self._waiting is not None and self._waiting.expired():
                raise self.refusal from None
            raise  # of the work itself
        finally:
            self._waiting = None

    def shorten(self, seconds: float, refusal: Refusal) -> None:
        at = asyncio.get_running_loop().time() + seconds
        if at < self.at:
            self.at, self.refusal = at, refusal
            if self._waiting is not None and not self._waiting.expired():
                self._waiting.reschedule(at)


_WEIGHT = 0.1  # of the latest request, in the mean duration


class Admission:
    """Admit `most_running` requests at a time and queue `most_queued`, in order; `cut` counts those out of time."""

    def __init__(self, most_running: int, most_queued: int) -> None:
        self._free = asyncio.Semaphore(most_running)
        self._most_running, self._most_queued = most_running, most_queued
        self._mean = 1.0
        self._deadlines: set[RequestDeadline] = set()
        self.stopping = asyncio.Event()
        self.running = self.queued = self.cut = 0

    @asynccontextmanager
    async def admitted(self, deadline: RequestDeadline) -> AsyncIterator[None]:
        """Admit one request; raise `OverloadedError` if the queue is full, `Refusal` after a timeout or in shutdown."""
        if self.stopping.is_set():
            raise _shutting_down()
        self._deadlines.add(deadline)
        try:
            async with self._turn(deadline):
                yield
        except Refusal as refusal:
            self.cut += refusal.code == "shutting_down"
            raise
        finally:
            self._deadlines.discard(deadline)

    @asynccontextmanager
    async def _turn(self, deadline: RequestDeadline) -> AsyncIterator[None]:
        if self._free.locked() and self.queued >= self._most_queued:
            raise OverloadedError(
                f"{self.running} requests are being answered and {self.queued} wait, as many as this server takes; "
                "send it again later",
                retry_after=self._mean * (self.queued + 1) / self._most_running,
            )
        self.queued += 1
        try:
            await deadline.wait(self._free.acquire())
        finally:
            self.queued -= 1
        self.running += 1
        began = time.monotonic()
        try:
            yield
        finally:
            self.running -= 1
            self._free.release()
            self._mean += _WEIGHT * (time.monotonic() - began - self._mean)

    def end(self, seconds: float) -> None:
        self.stopping.set()
        for deadline in self._deadlines:
            deadline.shorten(seconds, _shutting_down())


def _shutting_down() -> Refusal:
    return Refusal(503, "shutting_down", "the server is shutting down; send the request again in a while")
