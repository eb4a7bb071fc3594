"""A swarm whose router is a separate process: it can crash and restart, and in-flight responses resume.

The prompt, sampling settings, seed, tokens so far and their plans are kept here. A new router recomputes the last
token, which must be the same, and continues.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import shutil
import signal
import socket
import tempfile
from asyncio.subprocess import Process
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

from PIL import Image

from layerwise import errors
from layerwise.errors import LayerwiseError, SwarmError
from layerwise.swarm.answer import Answer, Decoding, Event, Overview, PromptScores, TokenSpan, continued
from layerwise.swarm.cluster.connection import FOLDER
from layerwise.swarm.node_records import MOST_EVENTS
from layerwise.swarm.serve.router_messages import (
    CHANNEL,
    REPORTS,
    Answered,
    Cancel,
    CheckReady,
    Classify,
    Failed,
    Generate,
    Opened,
    Order,
    ReadyReport,
    Report,
    Scored,
    ScorePrompt,
    Seen,
    Token,
    frame,
    frames,
)

log = logging.getLogger("layerwise.swarm.serve")

R = TypeVar("R", Answered, Scored, ReadyReport)

MOST_DEATHS = 3
"""Routers that a request may lose: one that has lost so many may be what ends them."""

MOST_STARTS = 3
"""Routers in a row that did not start, after which requests are refused until one does."""

SILENCE = 60.0
"""Seconds in which a router says nothing of its swarm before it is taken for one that hangs."""

ERROR_OUTPUT = 2
"""The number of the file that errors are written to."""

LAST_SECONDS = 10.0
"""Seconds that a router has to end which has said that it cannot begin."""

LONGEST_WAIT = 30.0
"""Seconds between two attempts to start a router, at most."""


class _RouterLost(Exception):
    """The router has ended before it had answered."""


@dataclass(eq=False)
class RunningRouter:
    """One process of a router, from its start to its end. `folder` is that of its cluster."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    process: Process | None = None
    folder: Path | None = None
    pending: dict[str, asyncio.Queue[Report | None]] = field(default_factory=dict)
    is_over: bool = False

    @classmethod
    async def started(cls, command: Sequence[str]) -> RunningRouter:
        """A process that has begun to gather its swarm; what it prints goes to the error output of this one."""
        here, there = socket.socketpair()
        folder = Path(tempfile.mkdtemp(prefix="layerwise-"))
        try:
            with there:
                process = await asyncio.create_subprocess_exec(
                    *command,
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=ERROR_OUTPUT,
                    start_new_session=True,
                    pass_fds=[there.fileno()],
                    env={**os.environ, CHANNEL: str(there.fileno()), FOLDER: str(folder)},
                )
        except BaseException:
            here.close()
            folder.rmdir()
            raise
        reader, writer = await asyncio.open_connection(sock=here)
        return cls(reader, writer, process, folder)

    async def reports(self, order: Order) -> AsyncGenerator[Report, None]:
        """What the router answers. Raises the error that it names, and `_RouterLost` where it ends before."""
        if self.is_over:
            raise _RouterLost
        reports = self.pending[order.request] = asyncio.Queue()
        self.writer.write(frame(order))
        try:
            while True:
                report = await reports.get()
                if report is None:
                    raise _RouterLost
                if isinstance(report, Failed):
                    raise _error(report)
                yield report
        finally:
            del self.pending[order.request]
            if not self.is_over:
                self.writer.write(frame(Cancel(order.request)))

    async def end(self, seconds: float) -> str:
        """Let the process end by itself within so many seconds, then end what is left of it; how it ended, in words."""
        self.is_over = True
        self.writer.close()
        try:
            async with asyncio.timeout(seconds):
                await self.ended()
        except TimeoutError:
            if seconds:
                log.warning("the router did not end within %g s", seconds)
        finally:
            self.kill()
            status = await asyncio.shield(self.ended())
            if self.folder is not None:
                shutil.rmtree(self.folder, ignore_errors=True)
            for reports in self.pending.values():
                reports.put_nowait(None)
        return f"exit status {status}" if status >= 0 else signal.Signals(-status).name

    async def ended(self) -> int:
        return 0 if self.process is None else await self.process.wait()

    def kill(self) -> None:
        if self.process is not None:
            if self.process.returncode is None:
                self.process.kill()
            for each in _of_session(self.process.pid):
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(each, signal.SIGKILL)


class RouterProcess:
    """A swarm in a process that is restarted when it ends, with the interface of `Swarm` that the routes use."""

    def __init__(
        self, started: Callable[[], Awaitable[RunningRouter]], tokenizer: Callable[[], Any], close_seconds: float = 20.0
    ) -> None:
        self._started, self._open_tokenizer, self._close_seconds = started, tokenizer, close_seconds
        self._router: RunningRouter | None = None
        self._changed = asyncio.Condition()
        self._failures, self._reason = 0, ""
        self._keeping: asyncio.Task[None] | None = None
        self._numbers = count()
        self._earlier: deque[Event] = deque(maxlen=MOST_EVENTS)
        self.tokenizer: Any = None
        self._model: Opened
        self._overview: Overview
        self._opened = self._began = 0.0
        self._closing = False

    async def start(self) -> None:
        """Start the first router. Raises the error that keeps it from starting."""
        router = await self._begun()
        try:
            self.tokenizer = await asyncio.to_thread(self._open_tokenizer) if self._model.reads_text else None
        except BaseException:
            await router.end(0)
            raise
        self.name, self.max_length, self.labels = self._model.name, self._model.max_length, self._model.labels
        self._opened = asyncio.get_running_loop().time() - self.overview().seconds
        self._keeping = asyncio.ensure_future(self._keep(router))

    # -- what a server asks ---------------------------------------------------------------------------------------

    async def stream(
        self, ids: Sequence[int], decoding: Decoding, *, request: str
    ) -> AsyncGenerator[int | Answer, None]:
        if decoding.samples and decoding.seed is None:
            decoding = replace(decoding, seed=secrets.randbits(63))
        made: list[int] = []
        before: tuple[TokenSpan, ...] = ()
        deaths, differs, names = 0, False, count()
        while deaths < MOST_DEATHS:
            router = await self._live()
            kept = len(made) if differs else max(len(made) - 1, 0)
            if kept == decoding.max_new_tokens:
                yield Answer(request, tuple(made), "length", continued(before, kept, ()))
                return
            at, spans, differs = kept, before, False
            try:
                # What a router still says of an order that was cancelled has another name.
                order = Generate(f"{request}/{next(names)}", tuple(ids), decoding, tuple(made[:kept]))
                async with aclosing(router.reports(order)) as reports:
                    async for report in reports:
                        if isinstance(report, Answered):
                            answer = report.answer
                            yield Answer(request, tuple(made), answer.finish, continued(before, kept, answer.spans))
                            return
                        if not isinstance(report, Token):
                            continue
                        if report.spans is not None:
                            spans = continued(before, kept, report.spans)
                        at += 1
                        if at > len(made):
                            made.append(report.token)
                            yield report.token
                        elif made[at - 1] != report.token:
                            differs = True  # without the same layers, say: it is gone on behind what is written
                            break
            except _RouterLost:
                deaths += 1
            if not differs:
                before = spans
        raise SwarmError(f"{deaths} routers ended while they answered request {request}; send another one")

    async def score(self, ids: Sequence[int], *, request: str) -> tuple[PromptScores, Answer]:
        report = await self._answered(ScorePrompt(request, tuple(ids)), Scored)
        return report.scores, report.answer

    async def classify(self, image: Image.Image, *, request: str) -> tuple[Sequence[float], Answer]:
        report = await self._answered(Classify(request, image.size, image.tobytes()), Answered)
        return report.probabilities, report.answer

    async def ready(self) -> tuple[bool, str]:
        if self._router is None:
            return False, f"the router is started again: {self._reason}"
        report = await self._answered(CheckReady(f"probe-{next(self._numbers)}"), ReadyReport)
        return report.ready, report.reason

    def overview(self) -> Overview:
        seen = self._overview
        events = [replace(event, seconds=event.seconds + self._began) for event in seen.events]
        return replace(seen, seconds=seen.seconds + self._began, events=(*self._earlier, *events)[-MOST_EVENTS:])

    async def close(self) -> None:
        self._closing = True
        if self._router is not None:
            await self._router.end(self._close_seconds)
        if self._keeping is not None:
            self._keeping.cancel()
            await asyncio.gather(self._keeping, return_exceptions=True)

    async def _answered(self, order: Order, kind: type[R]) -> R:
        for _ in range(MOST_DEATHS):
            router = await self._live()
            with suppress(_RouterLost):
                async with aclosing(router.reports(order)) as reports:
                    async for report in reports:
                        if isinstance(report, kind):
                            return report
        raise SwarmError(f"{MOST_DEATHS} routers ended while they answered request {order.request}; send another one")

    # -- one process after another --------------------------------------------------------------------------------

    async def _live(self) -> RunningRouter:
        async with self._changed:
            await self._changed.wait_for(lambda: self._router is not None or self._failures >= MOST_STARTS)
            if self._router is None:
                raise SwarmError(f"the router has ended, and no other one could be started: {self._reason}")
            return self._router

    async def _begun(self) -> RunningRouter:
        router = await self._started()
        try:
            async for report in frames(router.reader, REPORTS):
                if isinstance(report, Failed):
                    raise _error(report)
                if isinstance(report, Opened):
                    self._model = report
                if isinstance(report, Seen):
                    self._overview = report.overview
                    return router
            raise SwarmError(f"the router ended before its nodes had their layers ({await router.end(LAST_SECONDS)})")
        except BaseException as error:
            await router.end(LAST_SECONDS if isinstance(error, LayerwiseError) else 0)
            raise

    async def _keep(self, router: RunningRouter) -> None:
        while True:
            await self._use(router)
            await self._heed(router)
            if self._closing:
                return
            self._reason = "its process ends"
            await self._use(None)  # first of all: nobody is to be given a router that has ended
            self._reason = await router.end(1.0)
            log.error("the router has ended (%s), and is started again", self._reason)
            self._note_loss(f"the router has ended ({self._reason}), and is started again")
            router = await self._begun_again()
            self._note_return("the router is there again; answers under way are gone on with")

    async def _heed(self, router: RunningRouter) -> None:
        reports = frames(router.reader, REPORTS)
        with suppress(TimeoutError, StopAsyncIteration):
            while True:
                async with asyncio.timeout(SILENCE):
                    report = await anext(reports)
                if isinstance(report, Seen):
                    self._overview = report.overview
                elif not isinstance(report, Opened) and report.request in router.pending:
                    router.pending[report.request].put_nowait(report)

    async def _begun_again(self) -> RunningRouter:
        while True:
            try:
                router = await self._begun()
            except LayerwiseError as error:
                self._failures, self._reason = self._failures + 1, str(error)
                log.error("the router could not be started again: %s", error)
                await self._use(None)
                await asyncio.sleep(min(2.0**self._failures, LONGEST_WAIT))
            else:
                self._failures = 0
                return router

    async def _use(self, router: RunningRouter | None) -> None:
        async with self._changed:
            self._router = router
            self._changed.notify_all()

    def _note_loss(self, text: str) -> None:
        seen, now = self.overview(), self._seconds()
        self._earlier = deque((*seen.events, Event(now, "lost", text)), maxlen=MOST_EVENTS)
        nodes = tuple(replace(node, state="gone", reason=text) for node in seen.nodes)
        self._overview = replace(seen, nodes=nodes, live_layers=(), events=())
        self._began = now - seen.seconds

    def _note_return(self, text: str) -> None:
        now = self._seconds()
        self._earlier.append(Event(now, "returned", text))
        self._began = now - self._overview.seconds

    def _seconds(self) -> float:
        return asyncio.get_running_loop().time() - self._opened


def _of_session(leader: int) -> list[int]:
    members = []
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if os.getsid(int(path.name)) == leader:
                members.append(int(path.name))
    return members


def _error(report: Failed) -> Exception:
    kind: type[Exception] = getattr(errors, report.kind, LayerwiseError) if report.kind else RuntimeError
    return kind(report.message)
