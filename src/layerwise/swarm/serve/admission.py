"""How many requests are answered at a time, and how many wait for that: beyond, a client is told when to come back."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from layerwise.errors import Overloaded
from layerwise.swarm.serve.deadline import RequestDeadline

_WEIGHT = 0.1  # of the latest request, in the mean duration


class Admission:
    """Lets `most_running` requests in at a time, and `most_queued` wait, first come, first served."""

    def __init__(self, most_running: int, most_queued: int) -> None:
        self._free = asyncio.Semaphore(most_running)
        self._most_running, self._most_queued = most_running, most_queued
        self._mean = 1.0
        self.running = 0
        self.queued = 0

    @asynccontextmanager
    async def admitted(self, deadline: RequestDeadline) -> AsyncIterator[None]:
        """One of the requests that are answered at a time.

        Raises `Overloaded` at once where the queue is full, and the deadline's `Refusal` for one that waits too long.
        """
        if self._free.locked() and self.queued >= self._most_queued:
            raise Overloaded(
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
