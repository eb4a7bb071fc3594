"""Access checks, responses that end when their client disconnects, and errors in the format of OpenAI's API."""

from __future__ import annotations

import asyncio
import json
import logging
import math
import re
import time
import uuid
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias
from urllib.parse import quote

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from layerwise.bounded import shown
from layerwise.errors import BelowQuorumError, OverloadedError, SwarmError
from layerwise.swarm.serve.settings import ServeSettings, is_allowed, is_loopback_header

_TYPES = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}


class RequestError(Exception):
    """A refused request: HTTP status, message, `code` for programs, and `param`, the invalid field if there is one."""

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
        message, param = _replace_surrogates(self.message), self.param and _replace_surrogates(self.param)
        return {"error": {"message": message, "type": kind, "param": param, "code": self.code}}


def _replace_surrogates(text: str) -> str:
    return text.encode("utf-8", "replace").decode()


def to_request_error(error: Exception) -> RequestError | None:
    """Convert an error of the swarm to a `RequestError`, or return `None` if it is unexpected.

    >>> to_request_error(OverloadedError("64 requests wait", retry_after=1.2)).headers
    {'Retry-After': '2'}
    >>> to_request_error(BelowQuorumError("3 of 12 layers are live and the quorum is 8 layers")).status
    503
    """
    if isinstance(error, RequestError):
        return error
    if isinstance(error, OverloadedError):
        seconds = str(max(1, math.ceil(error.retry_after)))
        return RequestError(429, "overloaded", str(error), headers={"Retry-After": seconds})
    if isinstance(error, BelowQuorumError):
        return RequestError(503, "below_quorum", str(error))
    if isinstance(error, SwarmError):
        return RequestError(503, "swarm_error", str(error))
    return None


def internal_error(request: str) -> RequestError:
    return RequestError(500, "internal_error", f"Internal server error; see the server log for request {request}.")


def find_outcome(refusal: RequestError) -> str:
    outcomes = {429: "overloaded", 500: "failed", 503: "refused", 504: "late"}
    if refusal.code == "shutting_down":
        return "stopped"
    return outcomes.get(refusal.status, "invalid")


log = logging.getLogger("layerwise.swarm.serve")

Write: TypeAlias = Callable[[bytes], Awaitable[None]]
"""Function that sends a chunk of a stream. Its first call also sends the headers."""

EVENTS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
]
"""Headers of an event stream, which proxies must not buffer."""

SEND_SECONDS = 10.0
"""Maximum seconds to send a complete answer or the end of a stream."""

DONE = b"data: [DONE]\n\n"


def event(content: Any) -> bytes:
    r"""Format a server-sent event.

    >>> event({"a": 1})
    b'data: {"a":1}\n\n'
    """
    return b"data: " + json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode() + b"\n\n"


class WatchedResponse(Response):
    """Response computed by the coroutine `work`, which is canceled when the client disconnects.

    `work` returns a response or writes events. If it raises an error, the client gets an error response, or an
    `{"error": ...}` event once a stream has started. `ended` is called once, with `None` (success), a `RequestError`,
    or `"disconnected"`.
    """

    def __init__(
        self,
        work: Callable[[Write], Awaitable[Response | None]],
        ended: Callable[[RequestError | str | None], None],
        request: str,
    ) -> None:
        super().__init__()
        self._work, self._ended, self._request = work, ended, request

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        outcome: RequestError | str | None = "disconnected"
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

    async def _run(self, scope: Scope, receive: Receive, send: Send) -> RequestError | str | None:
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
            refusal = to_request_error(error)
            if refusal is None:
                log.exception("request=%s failed", self._request)
                refusal = internal_error(self._request)
            response = JSONResponse(refusal.content(), refusal.status, refusal.headers)
        try:
            async with asyncio.timeout(SEND_SECONDS):  # the client may have stopped reading
                if not started and response is not None:
                    await response(scope, receive, send)
                else:
                    await send({"type": "http.response.body", "body": event(refusal.content()) if refusal else b""})
        except (TimeoutError, OSError):
            log.info("request=%s client stopped reading", self._request)
        return refusal


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


PUBLIC_PATHS = re.compile(r"/(live|health|page/[a-z_]+\.[a-z]+)?")
"""Paths that need no token: health checks return one word, and the page is empty until a token is entered."""

_SAFE_ID = re.compile(r"[A-Za-z0-9._:-]{1,64}")


class RequestGuard:
    def __init__(self, app: ASGIApp, settings: ServeSettings) -> None:
        self._app, self._settings = app, settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers, began = Headers(scope=scope), time.monotonic()
        name = request_id(headers.get("x-request-id", ""))
        scope.setdefault("state", {}).update(request_id=name, began=began, is_authorized=self._is_authorized(headers))
        status, sent = 0, 0

        async def send_with_headers(message: Message) -> None:
            nonlocal status, sent
            if message["type"] == "http.response.start":
                status = message["status"]
                answer_headers = MutableHeaders(scope=message)
                answer_headers["X-Request-Id"] = name
                answer_headers["X-Content-Type-Options"] = "nosniff"
            sent += len(message.get("body", b""))
            await send(message)

        try:
            self._check(scope, headers)
            body = await self._body(headers, receive)
            await self._app(scope, _replay_body(body, receive), send_with_headers)
        except RequestError as refusal:
            await _refuse(refusal, scope, receive, send_with_headers)
        except ClientDisconnect:
            log.info("request=%s client disconnected", name)
        except Exception:
            log.exception("request=%s failed", name)
            if not status:
                await _refuse(internal_error(name), scope, receive, send_with_headers)
        finally:
            log.info(
                "request=%s method=%s path=%s status=%d bytes=%d seconds=%.3f%s",
                name,
                quote(scope["method"]),
                quote(scope["path"])[:200],
                status,
                sent,
                time.monotonic() - began,
                "".join(f" {key}={value}" for key, value in scope["state"].get("log", {}).items()),
            )

    def _is_authorized(self, headers: Headers) -> bool:
        tokens = self._settings.tokens
        return not tokens or is_allowed(headers.get("authorization", ""), tokens)

    def _check(self, scope: Scope, headers: Headers) -> None:
        if "content-length" in headers and "transfer-encoding" in headers:
            raise RequestError(400, "invalid_request", "Content-Length and Transfer-Encoding cannot be combined.")
        if not self._settings.tokens:
            host, origin = headers.get("host", ""), headers.get("origin")
            if not is_loopback_header(host):
                raise RequestError(403, "unknown_host", "A server without tokens accepts only requests to localhost.")
            if origin is not None and origin.partition("://")[2] != host:
                raise RequestError(
                    403, "unknown_origin", "A server without tokens accepts only requests from its own page."
                )
        if not scope["state"]["is_authorized"] and PUBLIC_PATHS.fullmatch(scope["path"]) is None:
            raise RequestError(
                401,
                "invalid_api_key",
                "The API key is missing or wrong. Send `Authorization: Bearer TOKEN`.",
                headers={"WWW-Authenticate": "Bearer"},
            )
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        if scope["method"] == "POST" and kind != "application/json":
            # Any web page can submit a form to this server; only its own pages can send JSON.
            raise RequestError(415, "unsupported_media_type", "The content type must be application/json.")

    async def _body(self, headers: Headers, receive: Receive) -> bytes:
        max_bytes = self._settings.max_body_bytes
        too_large = RequestError(413, "body_too_large", f"The body must have at most {max_bytes} bytes.")
        content_length = headers.get("content-length", "0")
        if not content_length.isdecimal() or len(content_length) > 20 or int(content_length) > max_bytes:
            raise too_large
        parts, size = [], 0
        try:
            async with asyncio.timeout(self._settings.body_seconds):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise ClientDisconnect
                    parts.append(message.get("body", b""))
                    size += len(parts[-1])
                    if size > max_bytes:
                        raise too_large
                    if not message.get("more_body", False):
                        return b"".join(parts)
        except TimeoutError:
            seconds = self._settings.body_seconds
            raise RequestError(408, "body_late", f"The request body did not arrive within {seconds:g} s.") from None


def request_id(proposed: str) -> str:
    r"""Return the client's request id if it is safe to log, otherwise a new one.

    >>> request_id("trace-7"), len(request_id("a\nb"))
    ('trace-7', 32)
    """
    return proposed if _SAFE_ID.fullmatch(proposed) else uuid.uuid4().hex


def _replay_body(body: bytes, receive: Receive) -> Receive:
    read = False

    async def again() -> Message:
        nonlocal read
        if read:
            return await receive()
        read = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again


async def _refuse(refusal: RequestError, scope: Scope, receive: Receive, send: Send) -> None:
    # The unread rest of a body would be parsed as the next request.
    headers = {**refusal.headers, "Connection": "close"}
    await JSONResponse(refusal.content(), refusal.status, headers)(scope, receive, send)


def handle_errors(app: FastAPI, answer: Callable[[Request, RequestError], Response]) -> None:
    """Register `answer` as the response of `app` to refusals, invalid bodies and unknown paths."""

    @app.exception_handler(RequestError)
    async def refused(request: Request, refusal: RequestError) -> Response:
        return answer(request, refusal)

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> Response:
        return answer(request, _to_refusal(error))

    @app.exception_handler(HTTPException)
    async def other(request: Request, error: HTTPException) -> Response:
        code = {404: "not_found", 405: "method_not_allowed"}.get(error.status_code, "invalid_request")
        message = f"{request.method} {request.url.path[:200]}: {error.detail}"
        return answer(request, RequestError(error.status_code, code, message, headers=dict(error.headers or {})))


def _to_refusal(error: RequestValidationError) -> RequestError:
    first = error.errors()[0]
    if first["type"] == "json_invalid":
        return RequestError(400, "invalid_json", "The body must be valid JSON.")
    # The field's name is followed by the types that a union tried.
    field, *inside = first["loc"][1:] or ("body",)
    at = "".join(f"[{each}]" for each in inside if isinstance(each, int))
    value = "" if first["type"] == "missing" else f", got {shown(first['input'])}"
    return RequestError(400, "invalid_value", f"{field}{at}: {first['msg']}{value}", param=str(field))
