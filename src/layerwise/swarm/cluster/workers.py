"""The workers of a sweep or a study on Ray: plain actors, one a worker, which this process watches.

Ray neither starts an actor again nor sends it a call twice (`max_restarts=0`, `max_task_retries=0`): where a worker
dies, a new one is started in its place, and what is left of its piece is begun again. A piece whose workers die
`MOST_DEATHS` times, without anything of it having been finished, is left out, and named when all others are done.

Only plain values travel, and a worker runs only functions of layerwise. It sends back ("opened",), ("partial", VALUE),
("done", VALUE), ("refused", CLASS, MESSAGE) for a `LayerwiseError`, or ("failed", TRACEBACK).
"""

from __future__ import annotations

import os
import queue
import sys
import threading
import time
import traceback
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from layerwise import errors
from layerwise.errors import LayerwiseError, SwarmError
from layerwise.swarm.cluster.connection import LOCAL, Connection, cause_of, work_in

OPENED, PARTIAL, DONE, REFUSED, FAILED = "opened", "partial", "done", "refused", "failed"

THREADS = 1
"""Threads of torch in a worker: workers side by side are the threads."""


class Worker:
    """A worker. Ray gives it a process of its own, and calls one method at a time."""

    def __init__(self, folder: str, paths: tuple[str, ...]) -> None:
        """Work in `folder`, where it is there: what was named by a path from it is found; import from `paths` too."""
        work_in(folder, paths)
        self._function: Callable[[Any, Callable[[Any], None]], Any] | None = None

    def open(self, opens: str, shared: Mapping[str, Any]) -> tuple[Any, ...]:
        """Let go what was open, and open what the next pieces are about."""
        self._function = None
        try:
            import torch

            torch.set_num_threads(THREADS)
            self._function = function_named(opens)(shared)
        except Exception as error:
            return ending(error)
        return (OPENED,)

    def carry_out(self, piece: Any) -> Iterator[tuple[Any, ...]]:
        """Carry one piece out, in a thread, so that partial results leave while it is at work."""
        events: queue.SimpleQueue[tuple[Any, ...]] = queue.SimpleQueue()
        function = self._function

        def work() -> None:
            try:
                assert function is not None, "a worker is opened before it works"
                events.put((DONE, function(piece, lambda value: events.put((PARTIAL, value)))))
            except BaseException as error:
                events.put(ending(error))

        threading.Thread(target=work, name="piece", daemon=True).start()
        while True:
            event = events.get()
            yield event
            if event[0] != PARTIAL:
                return


def function_named(name: str) -> Callable[..., Any]:
    """The function that `layerwise.module:function` names. Raises `SwarmError` for one that is not of layerwise.

    >>> function_named("layerwise.swarm.cluster.workers:function_named") is function_named
    True
    """
    module, _, attribute = name.partition(":")
    if module.partition(".")[0] != "layerwise" or not attribute.isidentifier():
        raise SwarmError(f"a worker runs functions of layerwise, named layerwise.module:function; found {name[:80]!r}")
    function: Callable[..., Any] | None = getattr(import_module(module), attribute, None)
    if not callable(function):
        raise SwarmError(f"{module} has no function {attribute}; the worker may have another version of layerwise")
    return function


def ending(error: BaseException) -> tuple[str, ...]:
    """How a piece ended that raised `error`.

    >>> ending(SwarmError("nobody is there"))
    ('refused', 'SwarmError', 'nobody is there')
    """
    if isinstance(error, LayerwiseError):
        return (REFUSED, type(error).__name__, str(error))
    return (FAILED, "".join(traceback.format_exception(error)))


MOST_DEATHS = 3
"""Workers that a piece may cost without anything of it having been finished."""

PATIENCE = 60.0
"""Seconds without a worker after which it is said that none is there."""

_WAIT = 1.0
"""Seconds that this process waits at a stretch: a Ctrl-C is seen between two of them."""


@dataclass
class _Slot:
    """The place of one worker: its actor, what it was last asked, and which piece it is at."""

    actor: Any
    awaited: Any
    piece: int | None = None
    is_open: bool = False

    @property
    def is_awaited(self) -> bool:
        """Whether an answer of it is awaited."""
        return self.piece is not None or not self.is_open


@dataclass
class _Work:
    """One call of `map`: its pieces, those that wait, what was issued of each, and how often its workers died."""

    opens: str
    shared: Any
    pieces: Sequence[Any]
    rest: Callable[[Any], Any] | None
    waiting: deque[int] = field(default_factory=deque)
    issued: dict[int, Any] = field(default_factory=dict)
    deaths: Counter[int] = field(default_factory=Counter)
    lost: dict[int, str] = field(default_factory=dict)

    def begin(self, number: int) -> Any:
        """What is left of a piece; where that is less than when it was begun before, its deaths are forgotten."""
        piece = self.pieces[number] if self.rest is None else self.rest(self.pieces[number])
        if number in self.issued and self.issued[number] != piece:
            del self.deaths[number]
        self.issued[number] = piece
        return piece


class RayWorkers:
    """Workers on a Ray cluster; a context manager, so that none is left behind.

    `address` is `local`, `auto` or `HOST:PORT`; `count` workers at most, by default one for each processor (with
    `accelerators` for each of those) that the cluster has. `log` takes sentences about what becomes of them. Raises as
    `Connection` does.
    """

    def __init__(
        self,
        address: str = LOCAL,
        count: int | None = None,
        *,
        accelerators: bool = False,
        log: Callable[[str], None] | None = None,
    ) -> None:
        processors = count or available_processors()
        self._connection = Connection(address, processors)
        self._ray = self._connection.ray
        resources = self._ray.cluster_resources()
        self.count = count or max(1, int(resources.get("GPU" if accelerators else "CPU", processors)))
        self._options = {"num_cpus": 1, "max_restarts": 0, "max_task_retries": 0, "scheduling_strategy": "SPREAD"}
        if accelerators:
            self._options["num_gpus"] = 1
        self._log = log or _unheard
        self._slots: list[_Slot] = []
        self._opened: tuple[str, Any, Any] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let every worker go, and the cluster that was started here. Closing twice does nothing."""
        for slot in self._slots:
            self._end(slot)
        self._slots.clear()
        self._connection.close()

    def map(
        self,
        opens: str,
        shared: Mapping[str, Any],
        pieces: Sequence[Any],
        *,
        here: Callable[[Any, Callable[[Any], None]], Any] | None = None,
        on_partial: Callable[[int, Any], None] | None = None,
        rest: Callable[[Any], Any] | None = None,
    ) -> Iterator[tuple[int, Any]]:
        """The number and the result of every piece, as they are done; `layerwise.measure.workers` says more.

        `here` is not called. Raises `SwarmError`, once every other piece is done, for pieces whose workers died again
        and again, and at once for workers that die before they are open, or for a piece that failed otherwise.
        """
        work = _Work(opens, self._put(opens, shared), pieces, rest, deque(range(len(pieces))))
        try:
            yield from self._results(work, on_partial)
        finally:
            for slot in self._slots:
                if slot.is_awaited:
                    self._end(slot)
            self._slots = [slot for slot in self._slots if not slot.is_awaited]
        if work.lost:
            number, cause = next(iter(work.lost.items()))
            raise SwarmError(
                f"{len(work.lost)} of {len(pieces)} pieces of the work ended their workers {MOST_DEATHS} times, the "
                f"first {str(pieces[number])[:120]} ({cause}); everything else is done and kept. Give every worker "
                "more memory (fewer --workers), then run the same command again"
            )

    def _results(self, work: _Work, on_partial: Callable[[int, Any], None] | None) -> Iterator[tuple[int, Any]]:
        quiet_since = time.monotonic()
        closed = 0
        while work.waiting or any(slot.piece is not None for slot in self._slots):
            self._issue(work)
            awaited = [slot for slot in self._slots if slot.is_awaited]
            ready, _ = self._ray.wait([slot.awaited for slot in awaited], timeout=_WAIT, fetch_local=False)
            if ready:
                quiet_since = time.monotonic()
            elif not any(slot.is_open for slot in self._slots) and time.monotonic() - quiet_since > PATIENCE:
                self._log("no worker is ready: the cluster has no room for one, or it takes long to start")
                quiet_since = time.monotonic()
            for slot in [slot for slot in awaited if slot.awaited in ready]:
                event = self._event(slot)
                if event[0] == "died" and slot.piece is None:
                    closed += 1
                    if closed >= MOST_DEATHS + self.count:
                        raise SwarmError(
                            f"{closed} workers ended before they had opened the model ({event[1]}); give every worker "
                            "more memory (fewer --workers)"
                        )
                if event[0] == "died":
                    self._replace(slot, work, event[1])
                elif event[0] == OPENED:
                    slot.is_open, closed = True, 0
                elif event[0] == PARTIAL:
                    if on_partial is not None and slot.piece is not None:
                        on_partial(slot.piece, event[1])
                elif event[0] == DONE:
                    number, slot.piece = slot.piece, None
                    assert number is not None, "a result is that of a piece"
                    yield number, event[1]
                else:
                    raise raised(event)

    def _issue(self, work: _Work) -> None:
        """Start the workers that are missing, and give a piece to each that has none."""
        busy = sum(slot.piece is not None for slot in self._slots)
        while len(self._slots) < min(self.count, busy + len(work.waiting)):
            self._slots.append(self._started(work))
        for slot in self._slots:
            if slot.is_open and slot.piece is None and work.waiting:
                slot.piece = work.waiting.popleft()
                call = slot.actor.carry_out.options(num_returns="streaming")
                slot.awaited = call.remote(work.begin(slot.piece))

    def _started(self, work: _Work) -> _Slot:
        """A new worker that is opening what the pieces are about."""
        actor = self._ray.remote(Worker).options(**self._options).remote(str(Path.cwd()), tuple(sys.path))
        return _Slot(actor, actor.open.remote(work.opens, work.shared))

    def _event(self, slot: _Slot) -> tuple[Any, ...]:
        """What a worker that is ready has sent; `("died", why)` where it is no longer there."""
        try:
            reference = slot.awaited if slot.piece is None else next(slot.awaited)
            event: tuple[Any, ...] = self._ray.get(reference)
        except StopIteration:
            return ("died", "its answer ended before the piece did")
        except self._ray.exceptions.RayError as error:
            return ("died", cause_of(error))
        return event

    def _replace(self, slot: _Slot, work: _Work, cause: str) -> None:
        """Put a new worker in the place of one that died, and its piece before all that wait."""
        number = slot.piece
        self._end(slot)
        self._slots.remove(slot)
        if number is None:
            self._log(f"a worker ended before it was ready ({cause}); another one is started")
            return
        work.deaths[number] += 1
        if work.deaths[number] < MOST_DEATHS:
            work.waiting.appendleft(number)
            self._log(f"a worker ended ({cause}); what was left of its work is begun again by another one")
        else:
            work.lost[number] = cause
            self._log(f"a piece of the work ended its worker {MOST_DEATHS} times ({cause}), and is left out")

    def _put(self, opens: str, shared: Mapping[str, Any]) -> Any:
        """What is shared, in the store of the cluster; the workers that have another thing open are told to change."""
        if self._opened is not None and self._opened[0] == opens and self._opened[1] is shared:
            return self._opened[2]
        reference = self._ray.put(dict(shared))
        self._opened = (opens, shared, reference)
        for slot in self._slots:
            slot.is_open, slot.awaited = False, slot.actor.open.remote(opens, reference)
        return reference

    def _end(self, slot: _Slot) -> None:
        try:
            self._ray.kill(slot.actor, no_restart=True)
        except Exception:  # the cluster itself may be gone
            self._log("a worker could not be ended: the cluster no longer answers")


def available_processors() -> int:
    """The processors that this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1


def raised(event: tuple[Any, ...]) -> Exception:
    """The error that ended a piece: of its own class where it is one of layerwise's.

    >>> raised(("refused", "DataError", "no text"))
    DataError('no text')
    """
    if event[0] == REFUSED:
        kind = getattr(errors, event[1], LayerwiseError)
        error: Exception = kind(event[2])
        return error
    return SwarmError(f"a worker failed where it should not have; its own words:\n{event[1]}")


def _unheard(text: str) -> None:
    """What nobody listens to."""
