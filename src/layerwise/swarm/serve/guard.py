"""What every request passes on its way in: access, the bounds of its body, its id, and a line in the log."""

from __future__ import annotations

import asyncio
import logging
import re
import time
import uuid
from urllib.parse import quote

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from layerwise.swarm.serve.responses import Refusal, defect
from layerwise.swarm.serve.settings import ServeSettings, is_allowed, names_this_machine

log = logging.getLogger("layerwise.swarm.serve")

OPEN = frozenset(("/live", "/health", "/swarm"))
"""Paths without a token: two states of one word, and a page that holds nothing until it is given a token."""

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
        scope.setdefault("state", {}).update(request_id=name, began=began, known=self._known(headers))
        status, sent = 0, 0

        async def named_send(message: Message) -> None:
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
            await self._app(scope, _replayed(body, receive), named_send)
        except Refusal as refusal:
            await _refuse(refusal, scope, receive, named_send)
        except ClientDisconnect:
            log.info("request=%s its client has gone", name)
        except Exception:
            log.exception("request=%s failed", name)
            if not status:
                await _refuse(defect(name), scope, receive, named_send)
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

    def _known(self, headers: Headers) -> bool:
        tokens = self._settings.tokens
        return not tokens or is_allowed(headers.get("authorization", ""), tokens)

    def _check(self, scope: Scope, headers: Headers) -> None:
        if "content-length" in headers and "transfer-encoding" in headers:
            raise Refusal(
                400, "invalid_request", "the header has Content-Length and Transfer-Encoding; send one of them"
            )
        if not self._settings.tokens and not names_this_machine(headers.get("host", "")):
            raise Refusal(
                403, "unknown_host", "this server has no tokens and answers to loopback alone; address it as localhost"
            )
        if not scope["state"]["known"] and scope["path"] not in OPEN:
            raise Refusal(
                401,
                "invalid_api_key",
                "a token for access is missing or wrong; send `Authorization: Bearer TOKEN`",
                headers={"WWW-Authenticate": "Bearer"},
            )
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        if scope["method"] == "POST" and kind != "application/json":
            # A form of any web page could be sent here; JSON can be sent by pages of this server alone.
            raise Refusal(415, "unsupported_media_type", "write the body as JSON, with content-type application/json")

    async def _body(self, headers: Headers, receive: Receive) -> bytes:
        most = self._settings.most_body_bytes
        too_large = Refusal(413, "body_too_large", f"the body is larger than {most} bytes; send less")
        announced = headers.get("content-length", "0")
        if not announced.isdecimal() or len(announced) > 20 or int(announced) > most:
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
                    if size > most:
                        raise too_large
                    if not message.get("more_body", False):
                        return b"".join(parts)
        except TimeoutError:
            seconds = self._settings.body_seconds
            raise Refusal(408, "body_late", f"the request has not arrived whole within {seconds:g} s") from None


def request_id(proposed: str) -> str:
    """The id of a request in the log and in its answer: the client's, if it is safe to write down; else a new one.

    >>> request_id("trace-7"), len(request_id("a\\nb"))
    ('trace-7', 32)
    """
    return proposed if _SAFE_ID.fullmatch(proposed) else uuid.uuid4().hex


def _replayed(body: bytes, receive: Receive) -> Receive:
    read = False

    async def again() -> Message:
        nonlocal read
        if read:
            return await receive()
        read = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again


async def _refuse(refusal: Refusal, scope: Scope, receive: Receive, send: Send) -> None:
    # What is left of a body that was not read would be taken for the next request.
    headers = {**refusal.headers, "Connection": "close"}
    await JSONResponse(refusal.content(), refusal.status, headers)(scope, receive, send)
