"""One thread that runs one computation at a time, and streams its events to coroutines."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from itertools import count
from queue import PriorityQueue
from threading import Event, Thread
from typing import Any, TypeAlias

import torch

Item: TypeAlias = dict[str, Any]
"""An event of a computation, as JSON."""

CLOSE, REQUEST, BACKGROUND = range(3)
"""Priorities of jobs, the highest first."""


class StoppedError(Exception):
    """Stops a computation whose client has disconnected, or in the background while a user waits for another one."""


class Job:
    """A running computation: `emit` sends an event, `check` stops the computation if it is not wanted any more."""

    def __init__(self, work: Callable[[Job], None], must_stop: Callable[[], bool]) -> None:
        self.work = work
        self.canceled = Event()
        self.events: asyncio.Queue[Item | Exception | None] = asyncio.Queue()
        self._must_stop = must_stop
        self._loop = asyncio.get_running_loop()

    def emit(self, item: Item | Exception | None) -> None:
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self.events.put_nowait, item)

    def check(self) -> None:
        """Raise `StoppedError` between two forward passes."""
        if self.canceled.is_set() or self._must_stop():
            raise StoppedError


class Worker:
    """Runs jobs in order on one thread; background jobs run only while no other job waits."""

    def __init__(self) -> None:
        self._queue: PriorityQueue[tuple[int, int, Job | None]] = PriorityQueue()
        self._numbers = count()
        self._thread = Thread(target=self._run, name="layerwise-play", daemon=True)
        self._thread.start()

    @property
    def is_idle(self) -> bool:
        return self._queue.unfinished_tasks == 0

    async def stream(self, work: Callable[[Job], None], *, is_background: bool = False) -> AsyncGenerator[Item, None]:
        """Run `work` and yield its events; closing the generator cancels it.

        Raises what `work` raises, and `StoppedError` if a background job made room for another one.
        """
        job = Job(work, self._has_request if is_background else lambda: False)
        self._queue.put((BACKGROUND if is_background else REQUEST, next(self._numbers), job))
        try:
            while (item := await job.events.get()) is not None:
                if isinstance(item, Exception):
                    raise item
                yield item
        finally:
            job.canceled.set()

    def close(self) -> None:
        self._queue.put((CLOSE, next(self._numbers), None))
        self._thread.join(timeout=5)

    def _has_request(self) -> bool:
        # The first entry has the highest priority; a slice, since the queue may be empty.
        return any(priority < BACKGROUND for priority, *_ in self._queue.queue[:1])

    def _run(self) -> None:
        while (job := self._queue.get()[2]) is not None:
            outcome: Exception | None = None
            try:
                job.check()
                with torch.inference_mode():
                    job.work(job)
            except Exception as error:  # the coroutine that waits raises it
                outcome = error
            job.emit(outcome)
            self._queue.task_done()
