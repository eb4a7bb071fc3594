"""A swarm whose router is a separate process, which can crash and restart while in-flight responses resume.

This process keeps the prompt, sampling settings, seed, tokens and their plans. A new router recomputes the last token
and continues after it.
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
from layerwise.swarm.answer import Answer, Decoding, Event, Overview, PromptScores, TokenSpan, join_spans
from layerwise.swarm.cluster.connection import FOLDER
from layerwise.swarm.node_records import MAX_EVENTS
from layerwise.swarm.serve.router_messages import (
    CHANNEL,
    REPORTS,
    AnswerReport,
    Cancel,
    CheckReady,
    Classify,
    FailureReport,
    Generate,
    ModelReport,
    Order,
    OverviewReport,
    ReadyReport,
    Report,
    ScorePrompt,
    ScoreReport,
    TokenReport,
    encode_frame,
    read_frames,
)

log = logging.getLogger("layerwise.swarm.serve")

R = TypeVar("R", AnswerReport, ScoreReport, ReadyReport)

MAX_ROUTER_FAILURES = 3
"""Number of routers that may fail during a request. Then the request is refused, since it may be the cause."""

MAX_FAILED_STARTS = 3
"""Number of consecutive failed starts after which requests are refused until a router starts."""

MAX_SILENCE_SECONDS = 60.0
"""Seconds without an overview after which a router is considered hung."""

STDERR = 2

EXIT_SECONDS = 10.0
"""Maximum seconds to wait until a router that failed to start exits."""

MAX_RESTART_WAIT = 30.0
"""Maximum seconds between two attempts to start a router."""


class _RouterLostError(Exception):
    """The router exited before it answered."""


@dataclass(eq=False)
class RunningRouter:
    """One router process; `folder` is the directory of its cluster."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    process: Process | None = None
    folder: Path | None = None
    pending: dict[str, asyncio.Queue[Report | None]] = field(default_factory=dict)
    is_over: bool = False

    @classmethod
    async def start(cls, command: Sequence[str]) -> RunningRouter:
        """Start a router process with its output redirected to this process's stderr."""
        here, there = socket.socketpair()
        folder = Path(tempfile.mkdtemp(prefix="layerwise-"))
        try:
            with there:
                process = await asyncio.create_subprocess_exec(
                    *command,
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=STDERR,
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
        """Send an order and yield the reports on it.

        Raises the error that the router reports, or `_RouterLostError` if the router exits.
        """
        if self.is_over:
            raise _RouterLostError
        reports = self.pending[order.request] = asyncio.Queue()
        self.writer.write(encode_frame(order))
        try:
            while True:
                report = await reports.get()
                if report is None:
                    raise _RouterLostError
                if isinstance(report, FailureReport):
                    raise _error(report)
                yield report
        finally:
            del self.pending[order.request]
            if not self.is_over:
                self.writer.write(encode_frame(Cancel(order.request)))

    async def end(self, seconds: float) -> str:
        """Wait for the process to exit, kill it after `seconds`, and return its exit status as text."""
        self.is_over = True
        self.writer.close()
        try:
            async with asyncio.timeout(seconds):
                await self.wait_closed()
        except TimeoutError:
            if seconds:
                log.warning("the router did not exit within %g s", seconds)
        finally:
            self.kill()
            status = await asyncio.shield(self.wait_closed())
            if self.folder is not None:
                shutil.rmtree(self.folder, ignore_errors=True)
            for reports in self.pending.values():
                reports.put_nowait(None)
        return f"exit status {status}" if status >= 0 else signal.Signals(-status).name

    async def wait_closed(self) -> int:
        return 0 if self.process is None else await self.process.wait()

    def kill(self) -> None:
        if self.process is not None:
            if self.process.returncode is None:
                self.process.kill()
            for each in _find_session(self.process.pid):
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(each, signal.SIGKILL)


class RouterProcess:
    """A swarm in a process that is restarted when it exits. It has the methods of `Swarm` that the HTTP routes use."""

    def __init__(
        self, start: Callable[[], Awaitable[RunningRouter]], tokenizer: Callable[[], Any], close_seconds: float = 20.0
    ) -> None:
        self._start, self._open_tokenizer, self._close_seconds = start, tokenizer, close_seconds
        self._router: RunningRouter | None = None
        self._changed = asyncio.Condition()
        self._failures, self._reason = 0, ""
        self._keeping: asyncio.Task[None] | None = None
        self._numbers = count()
        self._earlier: deque[Event] = deque(maxlen=MAX_EVENTS)
        self.tokenizer: Any = None
        self._model: ModelReport
        self._overview: Overview
        self._opened = self._began = 0.0
        self._closing = False

    async def start(self) -> None:
        """Start the first router, and raise its error if it fails."""
        router = await self._begin()
        try:
            self.tokenizer = await asyncio.to_thread(self._open_tokenizer) if self._model.reads_text else None
        except BaseException:
            await router.end(0)
            raise
        self.name, self.max_length, self.labels = self._model.name, self._model.max_length, self._model.labels
        self._opened = asyncio.get_running_loop().time() - self.overview().seconds
        self._keeping = asyncio.ensure_future(self._supervise(router))

    # -- interface of a swarm -------------------------------------------------------------------------------------

    async def stream(
        self, ids: Sequence[int], decoding: Decoding, *, request: str
    ) -> AsyncGenerator[int | Answer, None]:
        if decoding.is_sampled and decoding.seed is None:
            decoding = replace(decoding, seed=secrets.randbits(63))
        made: list[int] = []
        before: tuple[TokenSpan, ...] = ()
        failures, differs, names = 0, False, count()
        while failures < MAX_ROUTER_FAILURES:
            router = await self._wait_for_router()
            start = len(made) if differs else max(len(made) - 1, 0)
            if start == decoding.max_new_tokens:
                yield Answer(request, tuple(made), "length", join_spans(before, start, ()))
                return
            at, spans, differs = start, before, False
            try:
                # Late reports on a canceled order have another name.
                order = Generate(f"{request}/{next(names)}", tuple(ids), decoding, tuple(made[:start]))
                async with aclosing(router.reports(order)) as reports:
                    async for report in reports:
                        if isinstance(report, AnswerReport):
                            answer = report.answer
                            yield Answer(request, tuple(made), answer.finish, join_spans(before, start, answer.spans))
                            return
                        if not isinstance(report, TokenReport):
                            continue
                        if report.spans is not None:
                            spans = join_spans(before, start, report.spans)
                        at += 1
                        if at > len(made):
                            made.append(report.token)
                            yield report.token
                        elif made[at - 1] != report.token:
                            differs = True  # for example without the same layers: continue after the sent tokens
                            break
            except _RouterLostError:
                failures += 1
            if not differs:
                before = spans
        raise SwarmError(f"{failures} routers failed while answering request {request}. Send another request.")

    async def score(self, ids: Sequence[int], *, request: str) -> tuple[PromptScores, Answer]:
        report = await self._request_report(ScorePrompt(request, tuple(ids)), ScoreReport)
        return report.scores, report.answer

    async def classify(self, image: Image.Image, *, request: str) -> tuple[Sequence[float], Answer]:
        report = await self._request_report(Classify(request, image.size, image.tobytes()), AnswerReport)
        return report.probabilities, report.answer

    async def ready(self) -> tuple[bool, str]:
        if self._router is None:
            return False, f"the router is restarting: {self._reason}"
        report = await self._request_report(CheckReady(f"probe-{next(self._numbers)}"), ReadyReport)
        return report.ready, report.reason

    def overview(self) -> Overview:
        seen = self._overview
        events = [replace(event, seconds=event.seconds + self._began) for event in seen.events]
        return replace(seen, seconds=seen.seconds + self._began, events=(*self._earlier, *events)[-MAX_EVENTS:])

    async def close(self) -> None:
        self._closing = True
        if self._router is not None:
            await self._router.end(self._close_seconds)
        if self._keeping is not None:
            self._keeping.cancel()
            await asyncio.gather(self._keeping, return_exceptions=True)

    async def _request_report(self, order: Order, kind: type[R]) -> R:
        for _ in range(MAX_ROUTER_FAILURES):
            router = await self._wait_for_router()
            with suppress(_RouterLostError):
                async with aclosing(router.reports(order)) as reports:
                    async for report in reports:
                        if isinstance(report, kind):
                            return report
        raise SwarmError(
            f"{MAX_ROUTER_FAILURES} routers failed while answering request {order.request}. Send another request."
        )

    # -- one process after another --------------------------------------------------------------------------------

    async def _wait_for_router(self) -> RunningRouter:
        async with self._changed:
            await self._changed.wait_for(lambda: self._router is not None or self._failures >= MAX_FAILED_STARTS)
            if self._router is None:
                raise SwarmError(f"The router exited and could not be restarted: {self._reason}")
            return self._router

    async def _begin(self) -> RunningRouter:
        router = await self._start()
        try:
            async for report in read_frames(router.reader, REPORTS):
                if isinstance(report, FailureReport):
                    raise _error(report)
                if isinstance(report, ModelReport):
                    self._model = report
                if isinstance(report, OverviewReport):
                    self._overview = report.overview
                    return router
            raise SwarmError(f"The router exited before the nodes had loaded ({await router.end(EXIT_SECONDS)}).")
        except BaseException as error:
            await router.end(EXIT_SECONDS if isinstance(error, LayerwiseError) else 0)
            raise

    async def _supervise(self, router: RunningRouter) -> None:
        while True:
            await self._set_router(router)
            await self._read_reports(router)
            if self._closing:
                return
            self._reason = "its process is exiting"
            await self._set_router(None)  # first, so that no request gets this router
            self._reason = await router.end(1.0)
            log.error("the router exited (%s) and is restarting", self._reason)
            self._note_loss(f"the router exited ({self._reason}) and is restarting")
            router = await self._restart()
            self._note_return("the router has restarted; in-flight responses resume")

    async def _read_reports(self, router: RunningRouter) -> None:
        reports = read_frames(router.reader, REPORTS)
        with suppress(TimeoutError, StopAsyncIteration):
            while True:
                async with asyncio.timeout(MAX_SILENCE_SECONDS):
                    report = await anext(reports)
                if isinstance(report, OverviewReport):
                    self._overview = report.overview
                elif not isinstance(report, ModelReport) and report.request in router.pending:
                    router.pending[report.request].put_nowait(report)

    async def _restart(self) -> RunningRouter:
        while True:
            try:
                router = await self._begin()
            except LayerwiseError as error:
                self._failures, self._reason = self._failures + 1, str(error)
                log.error("the router could not be restarted: %s", error)
                await self._set_router(None)
                await asyncio.sleep(min(2.0**self._failures, MAX_RESTART_WAIT))
            else:
                self._failures = 0
                return router

    async def _set_router(self, router: RunningRouter | None) -> None:
        async with self._changed:
            self._router = router
            self._changed.notify_all()

    def _note_loss(self, text: str) -> None:
        seen, now = self.overview(), self._seconds()
        self._earlier = deque((*seen.events, Event(now, "lost", text)), maxlen=MAX_EVENTS)
        nodes = tuple(replace(node, state="gone", reason=text) for node in seen.nodes)
        self._overview = replace(seen, nodes=nodes, live_layers=(), events=())
        self._began = now - seen.seconds

    def _note_return(self, text: str) -> None:
        now = self._seconds()
        self._earlier.append(Event(now, "returned", text))
        self._began = now - self._overview.seconds

    def _seconds(self) -> float:
        return asyncio.get_running_loop().time() - self._opened


def _find_session(leader: int) -> list[int]:
    members = []
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if os.getsid(int(path.name)) == leader:
                members.append(int(path.name))
    return members


def _error(report: FailureReport) -> Exception:
    kind: type[Exception] = getattr(errors, report.kind, LayerwiseError) if report.kind else RuntimeError
    return kind(report.message)
