"""Workers on Ray carry every piece to its end, whoever dies, and raise what a piece raises."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from layerwise.errors import PlanError, SwarmError
from layerwise.swarm.cluster.workers import MOST_DEATHS, RayWorkers

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore"), pytest.mark.usefixtures("trials")]


def test_every_piece_comes_back_with_what_it_said_in_order() -> None:
    said: dict[int, list[int]] = {number: [] for number in range(5)}
    with RayWorkers("local", 2) as workers:
        shared = {"times": 10}
        results = dict(
            workers.map("doubling", shared, [0, 1, 2, 3, 4], on_partial=lambda number, news: said[number].append(news))
        )
        assert results == {number: 10 * number for number in range(5)}
        assert said == {number: list(range(number)) for number in range(5)}
        assert dict(workers.map("doubling", shared, [7])) == {0: 70}
        assert dict(workers.map("doubling", {"times": 3}, [7])) == {0: 21}
        assert dict(workers.map("doubling", shared, [])) == {}


def test_a_worker_that_dies_is_replaced_and_its_piece_begun_again(tmp_path: Path) -> None:
    log: list[str] = []
    pieces = [("a", 0), ("b", 1), ("c", 2), ("d", 0)]
    with RayWorkers("local", 2, log=log.append) as workers:
        results = dict(workers.map("fatal", {"folder": str(tmp_path)}, pieces))
    assert results == {0: "a", 1: "b", 2: "c", 3: "d"}
    assert sum("begun again" in line for line in log) == 3


def test_a_piece_that_ends_its_workers_is_named_when_the_others_are_done(tmp_path: Path) -> None:
    pieces = [("bad", 99), *((f"{number}", 0) for number in range(5))]
    results: dict[int, str] = {}
    with RayWorkers("local", 2) as workers, pytest.raises(SwarmError, match=r"1 of 6 pieces .* ended .*'bad'"):
        results.update(workers.map("fatal", {"folder": str(tmp_path)}, pieces))
    assert results == {number: f"{number - 1}" for number in range(1, 6)}
    assert len(list((tmp_path / "bad").iterdir())) == MOST_DEATHS


def test_what_a_lost_piece_had_said_is_left_out_of_what_is_begun_again() -> None:
    heard: list[int] = []
    with RayWorkers("local", 1) as workers:
        results = workers.map(
            "halting",
            {},
            [list(range(9))],
            on_partial=lambda number, news: heard.append(news),
            rest=lambda piece: [number for number in piece if number not in heard],
        )
        assert dict(results) == {0: 1}
    assert heard == list(range(9))


def test_workers_that_are_killed_from_outside_lose_nothing() -> None:
    pids: set[int] = set()
    killed: list[int] = []

    def on_partial(number: int, pid: int) -> None:
        pids.add(pid)
        if len(killed) < 2:
            killed.append(pid)
            threading.Timer(0.3, os.kill, (pid, signal.SIGKILL)).start()

    with RayWorkers("local", 4) as workers:
        results = dict(workers.map("waiting", {}, [1.0] * 8, on_partial=on_partial))
    assert sorted(results) == list(range(8))
    assert not set(results.values()) & set(killed)


def test_an_error_of_a_piece_is_raised_as_what_it_is() -> None:
    with RayWorkers("local", 1) as workers:
        with pytest.raises(PlanError, match="a plan has no layer"):
            list(workers.map("refusing", {}, ["plan"]))
        with pytest.raises(SwarmError, match="ZeroDivisionError: one by zero"):
            list(workers.map("refusing", {}, ["other"]))
        with pytest.raises(PlanError, match="nothing is there"):
            list(workers.map("unopened", {}, [1]))
        assert dict(workers.map("doubling", {"times": 2}, [4])) == {0: 8}


def test_workers_that_die_before_they_are_open_are_not_started_for_ever() -> None:
    with RayWorkers("local", 1) as workers, pytest.raises(SwarmError, match="before they had opened"):
        list(workers.map("dying", {}, [1]))


def test_no_worker_outlives_what_it_works_for() -> None:
    pids: list[int] = []

    def running(pid: int) -> bool:
        try:
            return "Z" not in Path(f"/proc/{pid}/stat").read_text().split()[2]
        except OSError:
            return False

    with RayWorkers("local", 2) as workers:
        results = workers.map("waiting", {}, [0.1, 60.0], on_partial=lambda number, pid: pids.append(pid))
        next(results)
        results.close()  # the caller has seen enough
    until = time.monotonic() + 10
    while any(map(running, pids)) and time.monotonic() < until:
        time.sleep(0.1)
    assert pids
    assert not any(map(running, pids))


def test_what_is_shared_is_sent_once_and_read_as_it_was() -> None:
    shared: dict[str, Any] = {"times": 2, "bytes": b"\0" * 1_000_000}
    with RayWorkers("local", 2) as workers:
        for _ in range(3):
            assert dict(workers.map("doubling", shared, [1, 2])) == {0: 2, 1: 4}
