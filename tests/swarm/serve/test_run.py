"""How a server begins and ends: its port, signals, requests that are under way, and what is left of it: nothing."""

from __future__ import annotations

import asyncio
import builtins
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from layerwise.errors import SwarmError
from layerwise.swarm.serve.run import ENDING, check_libraries, listen, run
from layerwise.swarm.serve.settings import ServeSettings
from swarm.serve.fake import FakeSwarm
from swarm.serve.serving import Served, served, stream

PROGRAM = Path(__file__).with_name("program.py")


def begun(running: Served, tokens: int) -> Iterator[Any]:
    events = stream(running.url, tokens)
    next(events)
    return events


def test_requests_under_way_are_finished() -> None:
    with served(FakeSwarm(delay=0.01)) as running:
        events = begun(running, 60)
        running.stop()
        rest = list(events)
        assert rest[-1] == "[DONE]"
        assert rest[-2]["layerwise"]["plan"] == "0-11"
        with pytest.raises(OSError, match=r"refused|reset"):
            next(stream(running.url, 1))
    assert running.status == 0


def test_those_that_take_too_long_are_cut_off_with_a_reason() -> None:
    with served(FakeSwarm(delay=0.01), drain_seconds=0.1) as running:
        events = begun(running, 1_000)
        running.stop()
        *_, last = events
        assert last["error"]["code"] == "shutting_down"
        assert running.service.cancelled
    assert running.status == 1


def test_who_is_in_a_hurry_does_not_wait() -> None:
    with served(FakeSwarm(delay=0.01), drain_seconds=60) as running:
        events = begun(running, 1_000)
        running.stop()
        next(events)
        began = time.monotonic()
        running.hurry()
        *_, last = events
        running.thread.join(20)
        assert time.monotonic() - began < 5
        assert last["error"]["code"] == "shutting_down"
    assert running.status == 1


def test_nothing_is_left_of_a_server() -> None:
    before = {thread.name for thread in threading.enumerate()}
    with served(FakeSwarm()) as running:
        list(stream(running.url, 3))
        port = int(running.url.rpartition(":")[2])
    assert {thread.name for thread in threading.enumerate()} <= before
    listen("127.0.0.1", port).close()


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


@contextmanager
def program(*arguments: float) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, str(PROGRAM), *map(str, arguments)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "gathering\n"
            yield process
        finally:
            process.kill()


def url_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


@pytest.mark.slow
@pytest.mark.parametrize("number", ENDING)
def test_a_signal_lets_requests_finish_and_closes_the_nodes(number: signal.Signals) -> None:
    with program(0.02, 20, 0) as process:
        events = stream(url_of(process), 40)
        next(events)
        process.send_signal(number)
        assert list(events)[-1] == "[DONE]"
        out, err = process.communicate(timeout=20)
    assert (process.returncode, out) == (0, "closed\n")
    assert "Traceback" not in err
    assert "outcome=completed" in err


@pytest.mark.slow
def test_a_second_signal_ends_it_now() -> None:
    with program(0.02, 60, 0) as process:
        events = stream(url_of(process), 1_000)
        next(events)
        process.send_signal(signal.SIGINT)
        time.sleep(0.3)
        process.send_signal(signal.SIGINT)
        *_, last = events
        out, err = process.communicate(timeout=10)
    assert last["error"]["code"] == "shutting_down"
    assert (process.returncode, out) == (1, "closed\n")
    assert "Traceback" not in err


@pytest.mark.slow
def test_a_signal_while_the_nodes_start_ends_it() -> None:
    with program(0, 60, 60) as process:
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=10)
    assert (process.returncode, out) == (0, "")
    assert "Traceback" not in err
