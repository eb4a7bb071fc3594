"""Responses that end when their client disconnects. Errors have the format of OpenAI's API, also within a stream."""

from __future__ import annotations

import asyncio
import json
import logging
import math
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from layerwise.errors import BelowQuorumError, OverloadedError, SwarmError

_TYPES = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}


class Refusal(Exception):
    """A refused request: status, message, `code` for programs, and `param`, the wrong field of the request if any."""

    def __init__(
        self, status: int, code: str, message: str, *, param: str | None = None, headers: dict[str, str] | None = None
    ) -> None:
        self.status = status
        self.code = code
        self.message = message
        self.param = param
        self.headers = headers or {}
        super().__init__(message)

    def content(self) -> dict[str, Any]:
        kind = _TYPES.get(self.status, "invalid_request_error" if self.status < 500 else "server_error")
        message, param = _written(self.message), self.param and _written(self.param)
        return {"error": {"message": message, "type": kind, "param": param, "code": self.code}}


def _written(text: str) -> str:
    return text.encode("utf-8", "replace").decode()


def refusal_of(error: Exception) -> Refusal | None:
    """What an error of the swarm is to a client, or nothing for an error that is a defect.

    >>> refusal_of(OverloadedError("64 requests wait", retry_after=1.2)).headers
    {'Retry-After': '2'}
    >>> refusal_of(BelowQuorumError("3 of 12 layers are left, and 8 are asked for")).status
    503
    """
    if isinstance(error, Refusal):
        return error
    if isinstance(error, OverloadedError):
        seconds = str(max(1, math.ceil(error.retry_after)))
        return Refusal(429, "overloaded", str(error), headers={"Retry-After": seconds})
    if isinstance(error, BelowQuorumError):
        return Refusal(503, "below_quorum", str(error))
    if isinstance(error, SwarmError):
        return Refusal(503, "swarm_error", str(error))
    return None


def defect(request: str) -> Refusal:
    return Refusal(500, "internal_error", f"the server has a defect; its log speaks of it under request {request}")


def outcome_of(refusal: Refusal) -> str:
    outcomes = {429: "overloaded", 500: "failed", 503: "refused", 504: "late"}
    if refusal.code == "shutting_down":
        return "stopped"
    return outcomes.get(refusal.status, "invalid")


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


DONE = b"data: [DONE]\n\n"


def event(content: Any) -> bytes:
    """A server-sent event.

    >>> event({"a": 1})
    b'data: {"a":1}\\n\\n'
    """
    return b"data: " + json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode() + b"\n\n"


class WatchedResponse(Response):
    """Runs `work` to make the response, and cancels it when the client disconnects.

    `work` returns a response or writes events. An error of the swarm becomes a refusal, or an `{"error": ...}` event in
    a stream. `ended` is called once with `None` (done), a `Refusal`, or `"disconnected"`.
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
