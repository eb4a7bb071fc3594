"""How the swarm is: `/live`, `/health`, `/metrics`, and the live page `/swarm` with the events that it shows."""

from __future__ import annotations

import asyncio
import json
from base64 import b64encode
from dataclasses import asdict
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import Any

from fastapi import APIRouter, Request
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response

from layerwise.swarm.serve.responses import Refusal, WatchedResponse, Write
from layerwise.swarm.serve.state import ServerState

HEARTBEAT = 10
"""After so many looks without a change the overview is sent all the same: the connection is open."""


def observation_routes(state: ServerState) -> APIRouter:
    router = APIRouter()
    viewers = 0

    @router.get("/live")
    async def live() -> Response:
        return JSONResponse({"live": True})

    @router.get("/health")
    async def health(request: Request) -> Response:
        if state.admission.stopping.is_set():
            ready, reason = False, "the server is shutting down"
        else:
            ready, reason = await state.readiness.check()
        reasons = {"reason": reason} if reason and request.state.known else {}
        return JSONResponse({"ready": ready, **reasons}, 200 if ready else 503)

    @router.get("/metrics")
    async def metrics() -> Response:
        return Response(generate_latest(state.metrics.registry), media_type=CONTENT_TYPE_LATEST)

    @router.get("/swarm")
    async def page() -> Response:
        html, policy = live_page()
        return HTMLResponse(html, headers={"Content-Security-Policy": policy, "Referrer-Policy": "no-referrer"})

    @router.get("/swarm/overview")
    async def overview() -> Response:
        return JSONResponse(overview_fields(state))

    @router.get("/swarm/events")
    async def events(request: Request) -> Response:

        async def work(write: Write) -> Response | None:
            nonlocal viewers
            if viewers >= state.settings.most_viewers:
                raise Refusal(429, "too_many_viewers", f"{viewers} live pages are open, as many as there may be")
            viewers += 1
            try:
                await _send_changes(state, write)
            finally:
                viewers -= 1
            return None

        return WatchedResponse(work, lambda _: None, request.state.request_id)

    @router.get("/")
    async def root() -> Response:
        makes = ("completions", "chat/completions") if state.service.tokenizer is not None else ("classify",)
        paths = ("/v1/models", *(f"/v1/{each}" for each in makes), "/health", "/live", "/metrics", "/swarm")
        return PlainTextResponse("\n".join((f"layerwise serves {state.service.name}", *paths, "")))

    return router


async def _send_changes(state: ServerState, write: Write) -> None:
    last, unchanged = "", 0
    while not state.admission.stopping.is_set():
        fields = overview_fields(state)
        seen = json.dumps({**fields, "seconds": 0})
        unchanged = unchanged + 1 if seen == last else 0
        if unchanged % HEARTBEAT == 0:
            last = seen
            await write(b"data: " + json.dumps(fields).encode() + b"\n\n")
        try:
            async with asyncio.timeout(state.settings.page_seconds):
                await state.admission.stopping.wait()
        except TimeoutError:
            continue


def overview_fields(state: ServerState) -> dict[str, Any]:
    return {**asdict(state.service.overview()), "queued": state.admission.queued}


@cache
def live_page() -> tuple[str, str]:
    folder = files("layerwise.swarm.serve") / "page"
    style, script = ((folder / name).read_text("utf-8") for name in ("page.css", "page.js"))
    html = (folder / "page.html").read_text("utf-8").replace("/*style*/", style).replace("/*script*/", script)
    style_hash, script_hash = (b64encode(sha256(text.encode()).digest()).decode() for text in (style, script))
    policy = (
        f"default-src 'none'; style-src 'sha256-{style_hash}'; script-src 'sha256-{script_hash}'; connect-src 'self'; "
        "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    return html, policy
