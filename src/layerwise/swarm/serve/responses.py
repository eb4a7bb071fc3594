"""Responses that end when their client goes away, and that say what went wrong, also halfway."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from layerwise.swarm.serve.objects import event
from layerwise.swarm.serve.refusals import Refusal, defect, refusal_of

log = logging.getLogger("layerwise.swarm.serve")

Write: TypeAlias = Callable[[bytes], Awaitable[None]]
"""Sends a part of a stream; the first part sends the header, too."""

EVENTS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
]
"""The header of a stream of events: no proxy keeps any of it back."""


LAST_SECONDS = 10.0
"""Within which a client takes a whole answer, or the end of a stream."""


class WatchedResponse(Response):
    """Runs `work` to make the response, and cancels it when the client disconnects.

    `work` returns a response, or writes events itself and returns nothing. An error of the swarm becomes a refusal with
    its status; after the first event it becomes an event `{"error": ...}`, and the stream ends. `ended` is called
    once with what came of it: `None` (done), a `Refusal`, or `"disconnected"`.
    """

    def __init__(
        self,
        work: Callable[[Write], Awaitable[Response | None]],
        ended: Callable[[Refusal | str | None], None],
        request: str,
    ) -> None:
        super().__init__()
        self._work, self._ended, self._request = work, ended, request

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, as ASGI wants it."""
        outcome: Refusal | str | None = "disconnected"
        work = asyncio.ensure_future(self._run(scope, receive, send))
        gone = asyncio.ensure_future(_disconnected(receive))
        try:
            await asyncio.wait((work, gone), return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                outcome = work.result()
        finally:
            work.cancel()
            gone.cancel()
            await asyncio.gather(work, gone, return_exceptions=True)
            self._ended(outcome)

    async def _run(self, scope: Scope, receive: Receive, send: Send) -> Refusal | str | None:
        started = False

        async def write(part: bytes) -> None:
            nonlocal started
            try:
                if not started:
                    started = True
                    await send({"type": "http.response.start", "status": 200, "headers": EVENTS})
                await send({"type": "http.response.body", "body": part, "more_body": True})
            except OSError as error:
                raise ClientDisconnect from error

        refusal = None
        try:
            response = await self._work(write)
        except ClientDisconnect:
            return "disconnected"
        except Exception as error:
            refusal = refusal_of(error)
            if refusal is None:
                log.exception("request=%s failed", self._request)
                refusal = defect(self._request)
            response = JSONResponse(refusal.content(), refusal.status, refusal.headers)
        try:  # a client that reads nothing keeps nobody waiting
            async with asyncio.timeout(LAST_SECONDS):
                if not started and response is not None:
                    await response(scope, receive, send)
                else:
                    await send({"type": "http.response.body", "body": event(refusal.content()) if refusal else b""})
        except (TimeoutError, OSError):
            log.info("request=%s its client takes no more", self._request)
        return refusal


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
