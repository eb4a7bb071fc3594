"""The routes of a language model: `/v1/completions` and `/v1/chat/completions`."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, replace

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse, Response

from layerwise.errors import SwarmError
from layerwise.swarm.answer import Answer
from layerwise.swarm.decoding.text_stream import TextStream
from layerwise.swarm.serve.admission import RequestDeadline
from layerwise.swarm.serve.prompts import Prompt, chat_prompt, completion_prompt
from layerwise.swarm.serve.responses import DONE, Refusal, WatchedResponse, Write, event
from layerwise.swarm.serve.schemas import AnswerFormat, ChatBody, CompletionBody, GenerationBody, logprob_fields
from layerwise.swarm.serve.state import ServerState


def generation_routes(state: ServerState) -> APIRouter:
    router = APIRouter()

    @router.post("/v1/completions")
    async def completions(body: CompletionBody, request: Request) -> Response:
        _check(state, body)
        prompt = await completion_prompt(state.service, state.settings, body)
        if body.echo:
            return _scored(state, prompt, request)
        return _response(state, body, prompt, request, chat=False)

    @router.post("/v1/chat/completions")
    async def chat_completions(body: ChatBody, request: Request) -> Response:
        _check(state, body)
        prompt = await chat_prompt(state.service, state.settings, body)
        return _response(state, body, prompt, request, chat=True)

    return router


@dataclass(frozen=True, slots=True)
class TextPiece:
    """A piece of an answer's text; the last one has the `Answer`."""

    text: str
    answer: Answer | None = None


def _check(state: ServerState, body: GenerationBody) -> None:
    state.check_model(body.model)
    if state.service.tokenizer is None:
        raise Refusal(400, "unsupported_model", f"{state.service.name} classifies images; send them to /v1/classify")
    body.check_others()


def _response(state: ServerState, body: GenerationBody, prompt: Prompt, request: Request, chat: bool) -> Response:
    answer_format = AnswerFormat(chat, state.service.name, len(prompt.ids), usage=body.includes_usage)
    began = request.state.began
    deadline = RequestDeadline(state.settings.request_seconds - (time.monotonic() - began))
    answers: list[Answer] = []

    async def work(write: Write) -> Response | None:
        async with aclosing(pieces(state, prompt, answer_format.id, began, deadline)) as made:
            if not body.stream:
                texts = []
                async for piece in made:
                    texts.append(piece.text)
                    answers.extend([piece.answer] if piece.answer else [])
                return JSONResponse(answer_format.whole("".join(texts), answers[-1]))
            opening = answer_format.opening()
            async for piece in made:
                parts = [answer_format.piece(piece.text)] if piece.text else []
                if opening is not None:
                    parts, opening = [opening, *parts], None
                if piece.answer:
                    answers.append(piece.answer)
                    parts += answer_format.closing(piece.answer)
                if parts:
                    await deadline.wait(write(b"".join(map(event, parts)) + (DONE if piece.answer else b"")))
        return None

    endpoint = "chat" if chat else "completions"
    return WatchedResponse(work, lambda ended: state.count(endpoint, request, ended, answers), request.state.request_id)


def _scored(state: ServerState, prompt: Prompt, request: Request) -> Response:
    answer_format = AnswerFormat(False, state.service.name, len(prompt.ids))
    deadline = RequestDeadline(state.settings.request_seconds - (time.monotonic() - request.state.began))
    answers: list[Answer] = []

    async def work(_: Write) -> Response:
        async with state.admission.admitted(deadline):
            scores, answer = await deadline.wait(state.service.score(prompt.ids, request=answer_format.id))
        answers.append(replace(answer, tokens=scores.best[-1:], finish="length"))
        fields = logprob_fields(state.service.tokenizer, prompt.ids, scores)
        return JSONResponse(answer_format.whole("".join(fields["tokens"]), answers[-1], fields))

    return WatchedResponse(
        work, lambda ended: state.count("completions", request, ended, answers), request.state.request_id
    )


async def pieces(
    state: ServerState, prompt: Prompt, request: str, began: float, deadline: RequestDeadline
) -> AsyncGenerator[TextPiece, None]:
    text = TextStream(state.service.tokenizer, prompt.ids, prompt.decoding.stop)
    async with (
        state.admission.admitted(deadline),
        aclosing(state.service.stream(prompt.ids, prompt.decoding, request=request)) as made,
    ):
        last = None
        while True:
            try:
                item = await deadline.wait(anext(made))
            except StopAsyncIteration:
                raise SwarmError(f"the swarm ended request {request} without an answer; send it again") from None
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
