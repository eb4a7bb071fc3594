"""An event loop whose clock stands still while anything can be computed, and jumps when all that is left is waiting.

Deadlines, delays and retries of a rehearsal of hours then take as long as the computing among them, and happen in the
same order every time.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class _Jumping(selectors.DefaultSelector):
    """A selector that does not wait: it moves the clock on by what it was to wait for."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if not ready:
            if timeout is None:
                raise RuntimeError("everything waits for something that no event of virtual time will bring")
            self.now += max(timeout, 0.0)
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop on virtual time, in seconds from 0. It waits for no other thread and no other process."""

    def __init__(self) -> None:
        self._jumping = _Jumping()
        super().__init__(self._jumping)

    def time(self) -> float:
        """The virtual time, in seconds."""
        return self._jumping.now


def run_virtually(main: Coroutine[Any, Any, T]) -> T:
    """What `asyncio.run(main)` returns, on virtual time."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main)
