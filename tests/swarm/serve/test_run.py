"""Start and stop of a server: port, signals, in-flight requests and cleanup."""

import asyncio
import builtins
import math
import os
import signal
import socket
import threading
import urllib.error
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from layerwise.errors import SwarmError
from layerwise.swarm.serve.run import ENDING, check_libraries, run
from layerwise.swarm.serve.settings import ServeSettings
from swarm.serve.fake import FakeSwarm
from swarm.serve.serving import PATIENCE, eventually, served, stream


def refuses(url: str) -> bool:
    try:
        next(stream(url, 1))
    except urllib.error.HTTPError:
        return False  # it still answers, with a refusal
    except OSError:
        return True
    return False


def test_those_that_take_too_long_are_cut_off_with_a_reason() -> None:
    with served(FakeSwarm(allowed=1), drain_seconds=0.1) as running:
        events = stream(running.url, 60)
        next(events)
        running.stop()
        *_, last = events
        assert last["error"]["code"] == "shutting_down"
        assert running.service.cancelled
    assert running.status == 1


def test_nothing_is_left_of_a_server() -> None:
    before = {thread.name for thread in threading.enumerate()}
    with served(FakeSwarm()) as running:
        list(stream(running.url, 3))
    assert {thread.name for thread in threading.enumerate()} <= before


def test_a_port_that_is_taken_is_known_before_the_nodes_start() -> None:
    async def gather() -> FakeSwarm:
        raise AssertionError("the nodes were started")

    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(SwarmError, match=f"cannot listen on 127.0.0.1:{port}: .*choose another --port"):
            run(gather, ServeSettings(port=port), print)
    with pytest.raises(SwarmError, match="no token for access"):
        run(gather, ServeSettings(host="0.0.0.0"), print)


def test_a_service_that_cannot_be_gathered_is_an_error() -> None:
    async def gather() -> FakeSwarm:
        raise SwarmError("no node has memory for layer 3")

    with pytest.raises(SwarmError, match="layer 3"):
        run(gather, ServeSettings(port=0), print)


def test_nodes_that_do_not_stop_are_not_waited_for() -> None:
    class Stubborn(FakeSwarm):
        async def close(self) -> None:
            self.closed = True
            await asyncio.sleep(60)

    with served(Stubborn(), close_seconds=0.1) as running:
        pass
    assert running.status == 1


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *arguments: Any) -> Any:
        if name == "uvicorn":
            raise ImportError("no", name="uvicorn")
        return real(name, *arguments)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(SwarmError, match=r"needs uvicorn.*pip install 'layerwise\[ray\]'"):
        check_libraries()


@pytest.fixture
def signals() -> Iterator[None]:
    before = {number: signal.signal(number, _unhandled) for number in ENDING}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def _unhandled(number: int, frame: object) -> None:
    raise AssertionError(f"{signal.Signals(number).name} was not handled")


def run_beside(client: Callable[[FakeSwarm, str], None], service: FakeSwarm, **settings: Any) -> int:
    failures: list[BaseException] = []

    def work(url: str) -> None:
        try:
            client(service, url)
        except BaseException as failure:
            failures.append(failure)
            os.kill(os.getpid(), signal.SIGTERM)
            os.kill(os.getpid(), signal.SIGINT)

    async def gather() -> FakeSwarm:
        return service

    threads: list[threading.Thread] = []

    def announce(url: str) -> None:
        threads.append(threading.Thread(target=work, args=(url,)))
        threads[0].start()

    status = run(gather, ServeSettings(port=0, **settings), announce)
    threads[0].join(PATIENCE)
    if failures:
        raise failures[0]
    assert service.closed
    return status


@pytest.mark.usefixtures("signals")
@pytest.mark.parametrize("number", ENDING)
def test_a_signal_lets_requests_finish_and_closes_the_nodes(number: signal.Signals) -> None:
    def client(service: FakeSwarm, url: str) -> None:
        events = stream(url, 40)
        next(events)
        os.kill(os.getpid(), number)
        eventually(lambda: refuses(url))
        service.allowed = math.inf
        assert list(events)[-1] == "[DONE]"

    assert run_beside(client, FakeSwarm(allowed=1), drain_seconds=PATIENCE) == 0


@pytest.mark.usefixtures("signals")
def test_a_second_signal_ends_it_now() -> None:
    def client(service: FakeSwarm, url: str) -> None:
        events = stream(url, 40)
        next(events)
        os.kill(os.getpid(), signal.SIGINT)
        eventually(lambda: refuses(url))
        os.kill(os.getpid(), signal.SIGINT)
        *_, last = events
        assert last["error"]["code"] == "shutting_down"

    assert run_beside(client, FakeSwarm(allowed=1), drain_seconds=3600) == 1


@pytest.mark.usefixtures("signals")
def test_a_signal_while_the_nodes_start_ends_it() -> None:
    async def gather() -> FakeSwarm:
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.sleep(3600)
        raise AssertionError

    assert run(gather, ServeSettings(port=0), print) == 0
