"""The router process. It is separate from the server because Ray can end a process that is connected to it."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable
from contextlib import aclosing, suppress
from dataclasses import replace
from functools import partial

from PIL import Image

from layerwise.errors import LayerwiseError
from layerwise.swarm.answer import Answer, TokenSpan
from layerwise.swarm.serve.router_messages import (
    ORDERS,
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
from layerwise.swarm.swarm import Swarm

log = logging.getLogger("layerwise.swarm.serve")

OVERVIEW_SECONDS = 0.5
"""Seconds between two overviews that are sent to the server."""

Send = Callable[[Report], None]


def run_router(gather: Callable[[], Awaitable[Swarm]], channel: int) -> int:
    connection = socket.socket(fileno=channel)
    connection.set_inheritable(False)
    return asyncio.run(serve_router(gather, connection))


async def serve_router(gather: Callable[[], Awaitable[Swarm]], channel: socket.socket) -> int:
    reader, writer = await asyncio.open_connection(sock=channel)

    def send(report: Report) -> None:
        if not writer.is_closing():
            writer.write(encode_frame(report))

    try:
        swarm = await gather()
    except LayerwiseError as error:
        send(_failure("", error))
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()
        return 1
    send(ModelReport(swarm.name, swarm.tokenizer is not None, swarm.max_length, tuple(swarm.labels)))
    working: dict[str, asyncio.Task[None]] = {}

    async def read_orders() -> None:
        async for order in read_frames(reader, ORDERS):
            if isinstance(order, Cancel):
                if order.request in working:
                    working[order.request].cancel()
            else:
                task = working[order.request] = asyncio.ensure_future(_execute(swarm, order, send))
                task.add_done_callback(partial(_forget, working, order.request))

    watching, reading = asyncio.ensure_future(_report_overview(swarm, send)), asyncio.ensure_future(read_orders())
    try:
        await asyncio.wait((watching, reading), return_when=asyncio.FIRST_COMPLETED)
    finally:
        tasks = [watching, reading, *working.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await swarm.close()
        writer.close()
    return int(swarm.is_over)


async def _execute(swarm: Swarm, order: Order, send: Send) -> None:
    try:
        match order:
            case Generate():
                await _generate(swarm, order, send)
            case ScorePrompt():
                scores, answer = await swarm.score(order.ids, request=order.request)
                send(ScoreReport(order.request, scores, answer))
            case Classify():
                image = Image.frombytes("RGB", order.size, order.rgb)
                probabilities, answer = await swarm.classify(image, request=order.request)
                send(AnswerReport(order.request, answer, tuple(probabilities)))
            case CheckReady():
                send(ReadyReport(order.request, *await swarm.ready()))
    except LayerwiseError as error:
        if not swarm.is_over:  # otherwise the next router answers
            send(_failure(order.request, error))
    except Exception as error:
        log.exception("request=%s failed", order.request)
        send(FailureReport(order.request, "", f"{type(error).__name__}: {error}"))


async def _generate(swarm: Swarm, order: Generate, send: Send) -> None:
    sent: list[TokenSpan] = []
    async with aclosing(swarm.stream(order.ids, order.decoding, request=order.request, made=order.made)) as items:
        async for item in items:
            if isinstance(item, Answer):
                send(AnswerReport(order.request, item))
                return
            spans = swarm.spans(order.request)
            # Spans are sent only if more than the end of the last one changed.
            current = [*spans[:-1], replace(spans[-1], stop=0)]
            send(TokenReport(order.request, item, spans if current != sent else None))
            sent = current


async def _report_overview(swarm: Swarm, send: Send) -> None:
    while not swarm.is_over:
        send(OverviewReport(swarm.overview()))
        await asyncio.sleep(OVERVIEW_SECONDS)


def _forget(working: dict[str, asyncio.Task[None]], request: str, done: asyncio.Task[None]) -> None:
    if working.get(request) is done:
        del working[request]


def _failure(request: str, error: LayerwiseError) -> FailureReport:
    return FailureReport(request, type(error).__name__, str(error))
