"""HTTP server of a swarm; importable without FastAPI and uvicorn."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING

from layerwise.errors import SwarmError
from layerwise.swarm.serve.settings import ServeSettings, check_exposure

if TYPE_CHECKING:
    from fastapi import FastAPI
    from uvicorn import Server

    from layerwise.swarm.serve.state import Service

log = logging.getLogger("layerwise.swarm.serve")

EXIT_CUT_OFF = 1
"""Exit status if requests were cut off, or the nodes did not stop in time."""

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

_EXTRA_SECONDS = 15  # after draining, for connections that have stalled


def run(gather: Callable[[], Awaitable[Service]], settings: ServeSettings, announce: Callable[[str], None]) -> int:
    """Serve a swarm until a signal in `STOP_SIGNALS`.

    The port is bound before the nodes start. After the first signal, running requests have `drain_seconds` to finish. A
    second signal ends these requests.

    Args:
        gather: Function that creates the swarm.
        settings: Address, limits and tokens.
        announce: Called with the address once requests are accepted.

    Returns:
        The exit status: 0, or `EXIT_CUT_OFF`.

    Raises:
        SwarmError: If the address cannot be used or needs a token, or a library is missing.
    """
    check_exposure(settings.host, settings.tokens)
    check_libraries()
    listener = listen(settings.host, settings.port)
    with listener:
        return asyncio.run(_until_signal(gather, settings, listener, announce))


def check_libraries(extra: str = "ray", names: Sequence[str] = ("fastapi", "prometheus_client", "uvicorn")) -> None:
    """Raise `SwarmError`, naming the `extra` to install, if one of the libraries `names` cannot be imported."""
    for name in names:
        try:
            import_module(name)
        except ImportError as error:
            raise SwarmError(
                f"Serving requires {error.name}, which is not installed. Run pip install 'layerwise[{extra}]'."
            ) from error


def listen(host: str, port: int) -> socket.socket:
    """Bind a socket to an address, without accepting connections. Raises `SwarmError` on failure."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise SwarmError(
            f"Cannot listen on {host}:{port}: {error.strerror or error}. Pass another --port (0 is any free one)."
        ) from error
    return listener


def address_of(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


async def _until_signal(
    gather: Callable[[], Awaitable[Service]],
    settings: ServeSettings,
    listener: socket.socket,
    announce: Callable[[str], None],
) -> int:
    loop, stop, hurry = asyncio.get_running_loop(), asyncio.Event(), asyncio.Event()

    def on_signal() -> None:
        (hurry if stop.is_set() else stop).set()

    # Closing the terminal stops the server like Ctrl-C, except under nohup, which ignores SIGHUP.
    nohup = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    handled = [each for each in STOP_SIGNALS if not (nohup and each is signal.SIGHUP)]
    for number in handled:
        loop.add_signal_handler(number, on_signal)
    gathering, stopped = asyncio.ensure_future(gather()), asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait((gathering, stopped), return_when=asyncio.FIRST_COMPLETED)
        if not gathering.done():
            log.info("stopped before the nodes started")
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
        server = make_server(app, settings)
        serving = asyncio.ensure_future(server.serve(sockets=[listener]))
        while not server.started and not serving.done():
            await asyncio.sleep(0.01)
        if not serving.done():
            announce(address_of(listener))
            stopping, hurrying = asyncio.ensure_future(stop.wait()), asyncio.ensure_future(hurry.wait())
            await asyncio.wait((serving, stopping), return_when=asyncio.FIRST_COMPLETED)
            log.info("stopping: %d requests are running", state.admission.running + state.admission.queued)
            state.admission.drain(settings.drain_seconds)
            server.should_exit = True
            await asyncio.wait((serving, hurrying), return_when=asyncio.FIRST_COMPLETED)
            state.admission.drain(0)
            for each in (stopping, hurrying):
                each.cancel()
        await serving
        cut = state.admission.cut_off > 0
    finally:
        try:
            async with asyncio.timeout(settings.close_seconds):
                await service.close()
        except TimeoutError:
            log.error("the nodes did not stop within %g s", settings.close_seconds)
            cut = True
    log.info("stopped%s", ", with requests cut off" if cut else "")
    return EXIT_CUT_OFF if cut else 0


def serve_app(app: FastAPI, settings: ServeSettings, listener: socket.socket, announce: Callable[[], None]) -> None:
    """Serve `app` until the first signal in `STOP_SIGNALS`, and call `announce` once it accepts requests."""
    server = make_server(app, settings)

    def stop() -> None:
        server.should_exit = server.force_exit = True

    async def run_server() -> None:
        for number in STOP_SIGNALS:
            asyncio.get_running_loop().add_signal_handler(number, stop)
        serving = asyncio.ensure_future(server.serve(sockets=[listener]))
        while not server.started and not serving.done():
            await asyncio.sleep(0.01)
        await asyncio.to_thread(announce)
        await serving

    asyncio.run(run_server())


def make_server(app: FastAPI, settings: ServeSettings) -> Server:
    """Create a server that leaves signals to its caller."""
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
        limit_concurrency=settings.max_connections + 1,  # uvicorn counts the current request as well
        timeout_keep_alive=settings.keep_alive_seconds,
        timeout_graceful_shutdown=int(settings.drain_seconds) + _EXTRA_SECONDS,
    )
    return Quiet(config)
