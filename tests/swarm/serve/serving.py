"""Run uvicorn on a free loopback port in a thread."""

import asyncio
import json
import socket
import threading
import time
import urllib.request
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from typing import Any

from fastapi import FastAPI
from fastapi.testclient import TestClient

from layerwise.swarm.serve.app import create_app
from layerwise.swarm.serve.run import listen, serve
from layerwise.swarm.serve.settings import ServeSettings

TOKEN = "0123456789abcdef0123"

PATIENCE = 60.0


@dataclass
class Served:
    url: str
    service: Any
    stop: Callable[[], None]
    thread: threading.Thread
    status: int | None = None


@contextmanager
def run_server(service: Any, **settings: object) -> Iterator[Served]:
    chosen = ServeSettings(port=0, **settings)
    started, running = threading.Event(), {}
    listener = listen(chosen.host, chosen.port)

    async def main() -> None:
        stop, loop = asyncio.Event(), asyncio.get_running_loop()

        def announce(url: str) -> None:
            running["server"] = Served(url, service, lambda: loop.call_soon_threadsafe(stop.set), thread)
            started.set()

        running["status"] = await serve(service, chosen, listener, announce, stop, asyncio.Event())

    thread = threading.Thread(target=lambda: asyncio.run(main()), name="served")
    thread.start()
    try:
        assert started.wait(PATIENCE), "the server did not start"
        yield running["server"]
    finally:
        if thread.is_alive():
            running["server"].stop()
        thread.join(PATIENCE)
        is_free = listener.fileno() == -1
        listener.close()
        assert not thread.is_alive(), "the server did not stop"
        assert is_free, "the server kept its port"
        assert getattr(service, "closed", True)
        assert not service.overview().running
        running["server"].status = running["status"]


def run_async(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    @wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        asyncio.run(test(*args, **kwargs))

    return run


def connect(url: str) -> socket.socket:
    host, _, port = url.removeprefix("http://").rpartition(":")
    return socket.create_connection((host, int(port)), PATIENCE)


def wait_until(holds: Callable[[], object]) -> None:
    end = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < end, "timed out"
        time.sleep(0.01)


def stream(url: str, tokens: int) -> Iterator[Any]:
    body = json.dumps({"prompt": "a", "max_tokens": tokens, "stream": True}).encode()
    request = urllib.request.Request(f"{url}/v1/completions", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
        for line in answer:
            if line.startswith(b"data: "):
                yield line[6:].strip().decode() if line.startswith(b"data: [") else json.loads(line[6:])


@contextmanager
def client(service: Any, **settings: object) -> Iterator[TestClient]:
    app: FastAPI = create_app(service, ServeSettings(**settings))
    with TestClient(app, base_url="http://127.0.0.1", raise_server_exceptions=False) as made:
        yield made
    assert not service.overview().running
