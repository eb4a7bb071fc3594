"""Serve a swarm until it is stopped. Importable without FastAPI and uvicorn; `serve` then names what to install."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from layerwise.errors import SwarmError
from layerwise.swarm.serve.settings import ServeSettings, check_exposure

if TYPE_CHECKING:
    from fastapi import FastAPI
    from uvicorn import Server

    from layerwise.swarm.serve.state import Service

log = logging.getLogger("layerwise.swarm.serve")

CUT_OFF = 1
"""The exit status where requests had to be cut off, or nodes could not be stopped in time."""

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

_BACKSTOP = 15  # seconds behind the drain, for connections that take nothing more


def run(gather: Callable[[], Awaitable[Service]], settings: ServeSettings, announce: Callable[[str], None]) -> int:
    """Serve what `gather` makes until one of the signals `ENDING`, and return the exit status: 0, or `CUT_OFF`.

    The port is taken before the nodes start. The first signal gives running requests `drain_seconds`, a second one ends
    them. `announce` is called with the address once requests are accepted. Raises `SwarmError` for an address that
    cannot be used or is open without a token, and for a missing library.
    """
    check_exposure(settings.host, settings.tokens)
    check_libraries()
    listener = listen(settings.host, settings.port)
    with listener:
        return asyncio.run(_until_signal(gather, settings, listener, announce))


def check_libraries() -> None:
    try:
        import fastapi  # noqa: F401
        import prometheus_client  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError as error:
        raise SwarmError(f"serving needs {error.name}, which is not installed: pip install 'layerwise[ray]'") from error


def listen(host: str, port: int) -> socket.socket:
    """A socket that is bound to an address, and takes no connection yet. Raises `SwarmError` where that is refused."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise SwarmError(
            f"cannot listen on {host}:{port}: {error.strerror or error}; choose another --port (0 is any free one)"
        ) from error
    return listener


async def _until_signal(
    gather: Callable[[], Awaitable[Service]],
    settings: ServeSettings,
    listener: socket.socket,
    announce: Callable[[str], None],
) -> int:
    loop, stop, hurry = asyncio.get_running_loop(), asyncio.Event(), asyncio.Event()

    def on_signal() -> None:
        (hurry if stop.is_set() else stop).set()

    # A terminal that is closed ends the server like Ctrl-C, except under nohup, which ignores that signal.
    nohup = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    handled = [each for each in ENDING if not (nohup and each is signal.SIGHUP)]
    for number in handled:
        loop.add_signal_handler(number, on_signal)
    gathering, stopped = asyncio.ensure_future(gather()), asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait((gathering, stopped), return_when=asyncio.FIRST_COMPLETED)
        if not gathering.done():
            log.info("stopped before the swarm was gathered")
            return 0
        return await serve(gathering.result(), settings, listener, announce, stop, hurry)
    finally:
        for each in (gathering, stopped):
            each.cancel()
        await asyncio.gather(gathering, stopped, return_exceptions=True)
        for number in handled:
            loop.remove_signal_handler(number)


async def serve(
    service: Service,
    settings: ServeSettings,
    listener: socket.socket,
    announce: Callable[[str], None],
    stop: asyncio.Event,
    hurry: asyncio.Event,
) -> int:
    from layerwise.swarm.serve.app import create_app

    cut = False
    try:
        app = create_app(service, settings)
        state = app.state.server
        server = _server(app, settings)
        serving = asyncio.ensure_future(server.serve(sockets=[listener]))
        while not server.started and not serving.done():
            await asyncio.sleep(0.01)
        if not serving.done():
            host, port = listener.getsockname()[:2]
            announce(f"http://{f'[{host}]' if ':' in host else host}:{port}")
            stopping, hurrying = asyncio.ensure_future(stop.wait()), asyncio.ensure_future(hurry.wait())
            await asyncio.wait((serving, stopping), return_when=asyncio.FIRST_COMPLETED)
            log.info("stopping: %d requests are under way", state.admission.running + state.admission.queued)
            state.admission.end(settings.drain_seconds)
            server.should_exit = True
            await asyncio.wait((serving, hurrying), return_when=asyncio.FIRST_COMPLETED)
            state.admission.end(0)
            for each in (stopping, hurrying):
                each.cancel()
        await serving
        cut = state.admission.cut > 0
    finally:
        try:
            async with asyncio.timeout(settings.close_seconds):
                await service.close()
        except TimeoutError:
            log.error("the nodes did not stop within %g s", settings.close_seconds)
            cut = True
    log.info("stopped%s", ", with requests cut off" if cut else "")
    return CUT_OFF if cut else 0


def _server(app: FastAPI, settings: ServeSettings) -> Server:
    import uvicorn

    class Quiet(uvicorn.Server):
        @contextmanager
        def capture_signals(self) -> Iterator[None]:
            yield

    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        lifespan="off",
        loop="asyncio",
        http="h11",
        ws="none",
        proxy_headers=False,
        server_header=False,
        limit_concurrency=settings.most_connections + 1,  # uvicorn counts the one that asks, too
        timeout_keep_alive=settings.keep_alive_seconds,
        timeout_graceful_shutdown=int(settings.drain_seconds) + _BACKSTOP,
    )
    return Quiet(config)
