"""The process of a router, separate from its server because Ray can end the process that is connected to it."""

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
from layerwise.swarm.swarm import Swarm

log = logging.getLogger("layerwise.swarm.serve")

LOOK = 0.5
"""Seconds between two looks at the swarm, which the server shows."""

Send = Callable[[Report], None]


def answer_server(gather: Callable[[], Awaitable[Swarm]], channel: int) -> int:
    own = socket.socket(fileno=channel)
    own.set_inheritable(False)
    return asyncio.run(until_closed(gather, own))


async def until_closed(gather: Callable[[], Awaitable[Swarm]], channel: socket.socket) -> int:
    reader, writer = await asyncio.open_connection(sock=channel)

    def send(report: Report) -> None:
        if not writer.is_closing():
            writer.write(frame(report))

    try:
        swarm = await gather()
    except LayerwiseError as error:
        send(_failure("", error))
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()
        return 1
    send(Opened(swarm.name, swarm.tokenizer is not None, swarm.max_length, tuple(swarm.labels)))
    working: dict[str, asyncio.Task[None]] = {}

    async def heed() -> None:
        async for order in frames(reader, ORDERS):
            if isinstance(order, Cancel):
                if order.request in working:
                    working[order.request].cancel()
            else:
                task = working[order.request] = asyncio.ensure_future(_carry_out(swarm, order, send))
                task.add_done_callback(partial(_forget, working, order.request))

    watching, heeding = asyncio.ensure_future(_show(swarm, send)), asyncio.ensure_future(heed())
    try:
        await asyncio.wait((watching, heeding), return_when=asyncio.FIRST_COMPLETED)
    finally:
        tasks = [watching, heeding, *working.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await swarm.close()
        writer.close()
    return int(swarm.is_over)


async def _carry_out(swarm: Swarm, order: Order, send: Send) -> None:
    try:
        match order:
            case Generate():
                await _write(swarm, order, send)
            case ScorePrompt():
                scores, answer = await swarm.score(order.ids, request=order.request)
                send(Scored(order.request, scores, answer))
            case Classify():
                image = Image.frombytes("RGB", order.size, order.rgb)
                probabilities, answer = await swarm.classify(image, request=order.request)
                send(Answered(order.request, answer, tuple(probabilities)))
            case CheckReady():
                send(ReadyReport(order.request, *await swarm.ready()))
    except LayerwiseError as error:
        if not swarm.is_over:  # else another router answers
            send(_failure(order.request, error))
    except Exception as error:
        log.exception("request=%s failed", order.request)
        send(Failed(order.request, "", f"{type(error).__name__}: {error}"))


async def _write(swarm: Swarm, order: Generate, send: Send) -> None:
    known: list[TokenSpan] = []
    async with aclosing(swarm.stream(order.ids, order.decoding, request=order.request, made=order.made)) as items:
        async for item in items:
            if isinstance(item, Answer):
                send(Answered(order.request, item))
                return
            spans = swarm.spans(order.request)
            # A span that has grown by the token says nothing new.
            made = [*spans[:-1], replace(spans[-1], stop=0)]
            send(Token(order.request, item, spans if made != known else None))
            known = made


async def _show(swarm: Swarm, send: Send) -> None:
    while not swarm.is_over:
        send(Seen(swarm.overview()))
        await asyncio.sleep(LOOK)


def _forget(working: dict[str, asyncio.Task[None]], request: str, done: asyncio.Task[None]) -> None:
    if working.get(request) is done:
        del working[request]


def _failure(request: str, error: LayerwiseError) -> Failed:
    return Failed(request, type(error).__name__, str(error))
