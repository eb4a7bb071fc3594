"""A playground of the demo model behind a server on a free port."""

import asyncio
import http.client
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any
from urllib.request import Request, urlopen

from fastapi.testclient import TestClient

from layerwise import load
from layerwise.stack import Stack
from layerwise.studies.play.app import create_app
from layerwise.studies.play.playground import Playground
from layerwise.swarm.serve.run import address_of, listen, make_server
from layerwise.swarm.serve.settings import ServeSettings
from swarm.serve.serving import wait_until


@cache
def demo() -> Stack:
    return load("demo")


def open_playground(*evidence: str, text: str | None = None) -> Playground:
    return Playground.open(demo(), "demo", text, evidence)


@contextmanager
def client(playground: Playground | None = None, **settings: Any) -> Iterator[TestClient]:
    app = create_app(playground or open_playground(), ServeSettings(**settings))
    with TestClient(app, base_url="http://127.0.0.1", raise_server_exceptions=False) as made:
        yield made
    app.state.worker.close()


def events(response: Any) -> list[dict[str, Any]]:
    assert response.status_code == 200, response.text
    return [json.loads(line[6:]) for line in response.text.splitlines() if line.startswith("data: ")]


@dataclass
class Running:
    url: str
    app: Any

    @property
    def worker(self) -> Any:
        return self.app.state.worker

    def post_json(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        request = Request(self.url + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
        with urlopen(request, timeout=120) as answer:
            found: dict[str, Any] = json.load(answer)
        return found

    def post(self, path: str, body: dict[str, Any], read: int | None = None) -> list[dict[str, Any]]:
        """Return the events of a stream; with `read`, disconnect after that many."""
        host, _, port = self.url.removeprefix("http://").rpartition(":")
        connection = http.client.HTTPConnection(host, int(port), timeout=120)
        try:
            connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
            answer, found = connection.getresponse(), []
            assert answer.status == 200, answer.read()
            while (read is None or len(found) < read) and (line := answer.readline()):
                if line.startswith(b"data: "):
                    found.append(json.loads(line[6:]))
            return found
        finally:
            connection.close()


@contextmanager
def run_server(playground: Playground | None = None) -> Iterator[Running]:
    settings = ServeSettings(port=0, drain_seconds=0)
    app = create_app(playground or open_playground(), settings)
    with listen(settings.host, settings.port) as listener:
        server = make_server(app, settings)
        thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[listener])))
        thread.start()
        wait_until(lambda: server.started)
        try:
            yield Running(address_of(listener), app)
        finally:
            server.should_exit = server.force_exit = True
            thread.join(60)
            app.state.worker.close()
