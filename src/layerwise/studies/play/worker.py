"""One thread that runs one computation at a time, and streams its events to coroutines."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from itertools import count
from queue import PriorityQueue
from threading import Event, Lock, Thread
from typing import Any, TypeAlias

import torch

Item: TypeAlias = dict[str, Any]
"""An event of a computation, as JSON."""

log = logging.getLogger("layerwise.studies.play")


class CanceledError(Exception):
    """Stops a computation whose client has disconnected."""


class PreemptedError(Exception):
    """Stops a background computation, because a user waits for another one."""


class Job:
    """A running computation: `emit` sends an event, `check` stops the computation if it is not wanted any more."""

    def __init__(self, work: Callable[[Job], None], worker: Worker, is_background: bool) -> None:
        self.work = work
        self.is_background = is_background
        self.canceled = Event()
        self._worker = worker
        self._loop = asyncio.get_running_loop()
        self.events: asyncio.Queue[Item | Exception | None] = asyncio.Queue()

    def emit(self, item: Item | Exception | None) -> None:
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self.events.put_nowait, item)

    def check(self) -> None:
        """Raise `CanceledError` or `PreemptedError` between two forward passes."""
        if self.canceled.is_set():
            raise CanceledError
        if self.is_background and self._worker.waiting:
            raise PreemptedError


class Worker:
    """Runs jobs in order on one thread; background jobs run only while no other job waits."""

    def __init__(self) -> None:
        self._queue: PriorityQueue[tuple[int, int, Job | None]] = PriorityQueue()
        self._numbers = count()
        self._lock = Lock()
        self.waiting = 0
        self.is_idle = True
        self._thread = Thread(target=self._run, name="layerwise-play", daemon=True)
        self._thread.start()

    async def stream(self, work: Callable[[Job], None], *, is_background: bool = False) -> AsyncGenerator[Item, None]:
        """Run `work` and yield its events; closing the generator cancels it.

        Raises what `work` raises, and `PreemptedError` if a background job made room for another one.
        """
        job = Job(work, self, is_background)
        with self._lock:
            self.waiting += not is_background
        self._queue.put((int(is_background), next(self._numbers), job))
        try:
            while (item := await job.events.get()) is not None:
                if isinstance(item, Exception):
                    raise item
                yield item
        finally:
            job.canceled.set()

    def close(self) -> None:
        self._queue.put((-1, next(self._numbers), None))
        self._thread.join(timeout=5)

    def _run(self) -> None:
        while (job := self._queue.get()[2]) is not None:
            with self._lock:
                self.waiting -= not job.is_background
            self.is_idle = False
            outcome: Exception | None = None
            try:
                job.check()
                with torch.inference_mode():
                    job.work(job)
            except Exception as error:  # the coroutine that waits raises it
                outcome = error
            job.emit(outcome)
            self.is_idle = self._queue.empty()
