"""HTTP routes of a swarm: generation, classification, monitoring, and error responses."""

from __future__ import annotations

import asyncio
import base64
import binascii
import io
import json
import re
import time
import uuid
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

from fastapi import APIRouter, FastAPI, Request
from PIL import Image, ImageOps
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.responses import JSONResponse, Response

import layerwise
from layerwise.data.text.text_stream import TextStream
from layerwise.errors import SwarmError
from layerwise.swarm.answer import Answer
from layerwise.swarm.serve.page_files import page_routes
from layerwise.swarm.serve.responses import (
    DONE,
    RequestError,
    RequestGuard,
    WatchedResponse,
    Write,
    event,
    handle_errors,
)
from layerwise.swarm.serve.schemas import (
    AnswerFormat,
    ChatBody,
    CompletionBody,
    GenerationBody,
    ImageBody,
    Prompt,
    encode_chat,
    encode_completion,
    format_logprobs,
    format_swarm_fields,
)
from layerwise.swarm.serve.settings import ServeSettings, check_exposure
from layerwise.swarm.serve.state import RequestDeadline, ServerState, Service


def generation_routes(state: ServerState) -> APIRouter:
    router = APIRouter()

    @router.post("/v1/completions")
    async def completions(body: CompletionBody, request: Request) -> Response:
        _check(state, body)
        prompt = await encode_completion(state.service, state.settings, body)
        if body.echo:
            return _score_prompt(state, prompt, request)
        return _response(state, body, prompt, request, chat=False)

    @router.post("/v1/chat/completions")
    async def chat_completions(body: ChatBody, request: Request) -> Response:
        _check(state, body)
        prompt = await encode_chat(state.service, state.settings, body)
        return _response(state, body, prompt, request, chat=True)

    return router


@dataclass(frozen=True, slots=True)
class TextPiece:
    text: str
    answer: Answer | None = None


def _check(state: ServerState, body: GenerationBody) -> None:
    state.check_model(body.model)
    if state.service.tokenizer is None:
        raise RequestError(400, "unsupported_model", f"{state.service.name} classifies images. Use /v1/classify.")
    body.check_others()


def _response(state: ServerState, body: GenerationBody, prompt: Prompt, request: Request, chat: bool) -> Response:
    answer_format = AnswerFormat(chat, state.service.name, len(prompt.ids), usage=body.includes_usage)
    began, deadline = request.state.began, _start_deadline(state, request)
    answers: list[Answer] = []

    async def work(write: Write) -> Response | None:
        async with aclosing(generate_pieces(state, prompt, answer_format.id, began, deadline)) as pieces:
            if not body.stream:
                texts = []
                async for piece in pieces:
                    texts.append(piece.text)
                    answers.extend([piece.answer] if piece.answer else [])
                return JSONResponse(answer_format.full("".join(texts), answers[-1]))
            opening = answer_format.first_chunk()
            async for piece in pieces:
                parts = [answer_format.chunk(piece.text)] if piece.text else []
                if opening is not None:
                    parts, opening = [opening, *parts], None
                if piece.answer:
                    answers.append(piece.answer)
                    parts += answer_format.last_chunks(piece.answer)
                if parts:
                    await deadline.wait(write(b"".join(map(event, parts)) + (DONE if piece.answer else b"")))
        return None

    return _watch(state, request, "chat" if chat else "completions", work, answers)


def _start_deadline(state: ServerState, request: Request) -> RequestDeadline:
    return RequestDeadline(state.settings.request_seconds - (time.monotonic() - request.state.began))


def _watch(
    state: ServerState,
    request: Request,
    endpoint: str,
    work: Callable[[Write], Awaitable[Response | None]],
    answers: Sequence[Answer],
) -> Response:
    return WatchedResponse(work, lambda ended: state.count(endpoint, request, ended, answers), request.state.request_id)


def _score_prompt(state: ServerState, prompt: Prompt, request: Request) -> Response:
    answer_format = AnswerFormat(False, state.service.name, len(prompt.ids))
    deadline = _start_deadline(state, request)
    answers: list[Answer] = []

    async def work(_: Write) -> Response:
        async with state.admission.admit(deadline):
            scores, answer = await deadline.wait(state.service.score(prompt.ids, request=answer_format.id))
        answers.append(replace(answer, tokens=scores.best[-1:], finish="length"))
        fields = format_logprobs(state.service.tokenizer, prompt.ids, scores)
        return JSONResponse(answer_format.full("".join(fields["tokens"]), answers[-1], fields))

    return _watch(state, request, "completions", work, answers)


async def generate_pieces(
    state: ServerState, prompt: Prompt, request: str, began: float, deadline: RequestDeadline
) -> AsyncGenerator[TextPiece, None]:
    text = TextStream(state.service.tokenizer, prompt.ids, prompt.decoding.stop)
    async with (
        state.admission.admit(deadline),
        aclosing(state.service.stream(prompt.ids, prompt.decoding, request=request)) as made,
    ):
        last = None
        while True:
            try:
                item = await deadline.wait(anext(made))
            except StopAsyncIteration:
                raise SwarmError(f"The swarm ended request {request} without an answer. Try again.") from None
            if isinstance(item, Answer):
                yield TextPiece(text.finish(), replace(item, finish="stop") if text.stopped else item)
                return
            now = time.monotonic()
            state.metrics.tokens.inc()
            if last is None:
                state.metrics.first_token.observe(now - began)
            else:
                state.metrics.token.observe(now - last)
            last = now
            yield TextPiece(text.add(item))


FORMATS = ("PNG", "JPEG", "WEBP")
"""Formats that Pillow may decode; its other decoders are less hardened against hostile files."""

_DATA_URL = re.compile(r"data:image/[a-z+.-]+;base64,")


def image_routes(state: ServerState) -> APIRouter:
    router = APIRouter()

    @router.post("/v1/classify")
    async def classify(body: ImageBody, request: Request) -> Response:
        state.check_model(body.model)
        service = state.service
        if service.tokenizer is not None:
            raise RequestError(400, "unsupported_model", f"{service.name} is a language model. Use /v1/completions.")
        deadline = _start_deadline(state, request)
        answers: list[Answer] = []
        name = f"classify-{uuid.uuid4().hex}"

        async def work(_: Write) -> Response:
            async with state.admission.admit(deadline):
                image = await asyncio.to_thread(decode_image, body.image, state.settings.max_image_pixels)
                probabilities, answer = await deadline.wait(service.classify(image, request=name))
            answers.append(answer)
            classes = top_classes(probabilities, service.labels, body.top)
            content = {"id": name, "object": "classification", "model": service.name, "data": classes}
            return JSONResponse({**content, "layerwise": format_swarm_fields(answer)})

        return _watch(state, request, "classify", work, answers)

    return router


def decode_image(text: str, max_pixels: int) -> Image.Image:
    """Decode a base64 string or data URL to RGB. Raises `RequestError` for invalid data and for too many pixels."""
    start = _DATA_URL.match(text)
    try:
        content = base64.b64decode(text[start.end() if start else 0 :], validate=True)
    except (binascii.Error, ValueError):
        message = "image must be base64 or a data URL of an image, such as data:image/png;base64,..."
        raise RequestError(400, "invalid_image", message, param="image") from None
    try:
        with Image.open(io.BytesIO(content), formats=FORMATS) as image:
            width, height = image.size
            if width * height <= max_pixels:
                return ImageOps.exif_transpose(image).convert("RGB")
    except Exception as error:  # hostile bytes can make a decoder raise anything
        message = f"image must be a valid {', '.join(FORMATS)} file ({type(error).__name__})."
        raise RequestError(400, "invalid_image", message, param="image") from error
    message = f"image must have at most {max_pixels} pixels, got {width} x {height}."
    raise RequestError(413, "image_too_large", message, param="image")


def top_classes(probabilities: Sequence[float], labels: Sequence[str], top: int) -> list[dict[str, Any]]:
    """Return the `top` classes with the highest probabilities, in descending order.

    >>> top_classes([0.25, 0.75], ["cat", "dog"], top=1)
    [{'index': 1, 'label': 'dog', 'probability': 0.75}]
    """
    order = sorted(range(len(probabilities)), key=lambda index: -probabilities[index])[:top]
    return [
        {
            "index": index,
            "label": labels[index] if index < len(labels) else str(index),
            "probability": float(probabilities[index]),
        }
        for index in order
    ]


HEARTBEAT_CHECKS = 10
"""Number of unchanged overviews after which one is sent anyway, to keep the connection open."""


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
        reasons = {"reason": reason} if reason and request.state.is_authorized else {}
        return JSONResponse({"ready": ready, **reasons}, 200 if ready else 503)

    @router.get("/metrics")
    async def metrics() -> Response:
        return Response(generate_latest(state.metrics.registry), media_type=CONTENT_TYPE_LATEST)

    @router.get("/api/state")
    async def page_state() -> Response:
        service = state.service
        is_language_model = service.tokenizer is not None
        has_template = bool(getattr(service.tokenizer, "chat_template", None))
        depth = service.overview().depth
        fields = {"model": service.name, "depth": depth, "chat": has_template, "images": not is_language_model}
        return JSONResponse({"mode": "swarm", **fields})

    @router.get("/swarm/overview")
    async def overview() -> Response:
        return JSONResponse(format_overview(state))

    @router.get("/swarm/events")
    async def events(request: Request) -> Response:

        async def work(write: Write) -> Response | None:
            nonlocal viewers
            if viewers >= state.settings.max_viewers:
                raise RequestError(
                    429, "too_many_viewers", f"At most {viewers} live pages can be open at once. Close one of them."
                )
            viewers += 1
            try:
                await _send_changes(state, write)
            finally:
                viewers -= 1
            return None

        return WatchedResponse(work, lambda _: None, request.state.request_id)

    return router


async def _send_changes(state: ServerState, write: Write) -> None:
    last, unchanged = "", 0
    while not state.admission.stopping.is_set():
        fields = format_overview(state)
        seen = json.dumps({**fields, "seconds": 0})
        unchanged = unchanged + 1 if seen == last else 0
        if unchanged % HEARTBEAT_CHECKS == 0:
            last = seen
            await write(b"data: " + json.dumps(fields).encode() + b"\n\n")
        try:
            async with asyncio.timeout(state.settings.page_seconds):
                await state.admission.stopping.wait()
        except TimeoutError:
            continue


def format_overview(state: ServerState) -> dict[str, Any]:
    return {**asdict(state.service.overview()), "queued": state.admission.queued}


def create_app(service: Service, settings: ServeSettings) -> FastAPI:
    check_exposure(settings.host, settings.tokens)
    state = ServerState(service, settings)
    # FastAPI's documentation pages load scripts from a CDN; /openapi.json remains.
    app = FastAPI(title="layerwise swarm", version=layerwise.__version__, docs_url=None, redoc_url=None)
    app.state.server = state
    app.add_middleware(RequestGuard, settings=settings)
    for routes in (generation_routes, image_routes, observation_routes):
        app.include_router(routes(state))
    app.include_router(page_routes())

    def entry() -> dict[str, object]:
        return {"id": service.name, "object": "model", "created": state.created, "owned_by": "layerwise"}

    @app.get("/v1/models")
    async def models() -> Response:
        return JSONResponse({"object": "list", "data": [entry()]})

    @app.get("/v1/models/{model:path}")
    async def model(model: str) -> Response:
        state.check_model(model)
        return JSONResponse(entry())

    handle_errors(app, partial(_answer, state))
    return app


def _answer(state: ServerState, request: Request, refusal: RequestError) -> Response:
    endpoints = {"/v1/completions": "completions", "/v1/chat/completions": "chat", "/v1/classify": "classify"}
    if request.url.path in endpoints:
        state.count(endpoints[request.url.path], request, refusal)
    return JSONResponse(refusal.content(), refusal.status, refusal.headers)
