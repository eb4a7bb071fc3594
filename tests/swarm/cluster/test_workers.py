"""Workers on Ray carry every piece to its end, whoever dies, and raise what a piece raises."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from layerwise.errors import PlanError, SwarmError
from layerwise.swarm.cluster.workers import MOST_DEATHS, RayWorkers
from swarm.cluster.processes import descendants, eventually_ended

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore"), pytest.mark.usefixtures("trials")]


@dataclass
class Logged:
    """Two workers that the tests share, and what was said of them in this test."""

    workers: RayWorkers
    log: list[str] = field(default_factory=list)

    def map(self, opens: str, shared: Any, pieces: Any, **options: Any) -> Iterator[tuple[int, Any]]:
        return self.workers.map(opens, shared, pieces, **options)


@pytest.fixture(scope="module")
def both(ray: None) -> Iterator[Logged]:
    log: list[str] = []
    with RayWorkers("local", 2, log=log.append) as workers:
        yield Logged(workers, log)


@pytest.fixture
def two(both: Logged) -> Logged:
    both.log.clear()
    return both


def test_every_piece_comes_back_with_what_it_said_in_order(two: Logged) -> None:
    said: dict[int, list[int]] = {number: [] for number in range(5)}
    shared = {"times": 10}
    results = dict(
        two.map("doubling", shared, [0, 1, 2, 3, 4], on_partial=lambda number, news: said[number].append(news))
    )
    assert results == {number: 10 * number for number in range(5)}
    assert said == {number: list(range(number)) for number in range(5)}
    assert dict(two.map("doubling", {"times": 3}, [7])) == {0: 21}
    assert dict(two.map("doubling", shared, [])) == {}


def test_what_is_shared_is_sent_once_and_read_as_it_was(two: Logged, monkeypatch: pytest.MonkeyPatch) -> None:
    put, sent = two.workers._ray.put, list[Any]()
    monkeypatch.setattr(two.workers._ray, "put", lambda value: sent.append(value) or put(value))
    shared: dict[str, Any] = {"times": 2, "bytes": b"\0" * 1_000_000}
    for _ in range(3):
        assert dict(two.map("doubling", shared, [1, 2])) == {0: 2, 1: 4}
    assert sent == [shared]


def test_a_worker_that_dies_is_replaced_and_its_piece_begun_again(two: Logged, tmp_path: Path) -> None:
    pieces = [("a", 0), ("b", 2), ("c", 0)]
    assert dict(two.map("fatal", {"folder": str(tmp_path)}, pieces)) == {0: "a", 1: "b", 2: "c"}
    assert sum("begun again" in line for line in two.log) == 2


def test_a_piece_that_ends_its_workers_is_named_when_the_others_are_done(two: Logged, tmp_path: Path) -> None:
    pieces = [("bad", 99), *((f"{number}", 0) for number in range(5))]
    results: dict[int, str] = {}
    with pytest.raises(SwarmError, match=r"1 of 6 pieces .* ended .*'bad'"):
        results.update(two.map("fatal", {"folder": str(tmp_path)}, pieces))
    assert results == {number: f"{number - 1}" for number in range(1, 6)}
    assert len(list((tmp_path / "bad").iterdir())) == MOST_DEATHS


def test_what_a_lost_piece_had_said_is_left_out_of_what_is_begun_again(two: Logged, tmp_path: Path) -> None:
    heard: list[int] = []

    def on_partial(number: int, news: int) -> None:
        heard.append(news)
        (tmp_path / f"{news}").touch()

    results = two.map(
        "halting",
        {"folder": str(tmp_path)},
        [list(range(5))],
        on_partial=on_partial,
        rest=lambda piece: [number for number in piece if number not in heard],
    )
    assert dict(results) == {0: 1}
    assert heard == list(range(5))


def test_an_error_of_a_piece_is_raised_as_what_it_is(two: Logged) -> None:
    with pytest.raises(PlanError, match="a plan has no layer"):
        list(two.map("refusing", {}, ["plan"]))
    with pytest.raises(SwarmError, match="ZeroDivisionError: one by zero"):
        list(two.map("refusing", {}, ["other"]))
    with pytest.raises(PlanError, match="nothing is there"):
        list(two.map("unopened", {}, [1]))
    assert dict(two.map("doubling", {"times": 2}, [4])) == {0: 8}


def test_workers_that_die_before_they_are_open_are_not_started_for_ever() -> None:
    with RayWorkers("local", 1) as workers, pytest.raises(SwarmError, match="before they had opened"):
        list(workers.map("dying", {}, [1]))


def test_a_cluster_of_this_machine_has_no_process_that_nothing_asks(two: Logged) -> None:
    """Ray's own processes that are started at once keep each other from being ready in time."""
    commands = [Path(f"/proc/{process}/cmdline").read_text() for process in descendants(os.getpid())]
    assert any("raylet" in command for command in commands)
    assert not [command for command in commands if "monitor.py" in command]
    assert all("--minimal" in command for command in commands if "dashboard/agent.py" in command)


def test_no_worker_outlives_what_it_works_for(tmp_path: Path) -> None:
    """One has done its piece and one is in the middle of its own when the caller has seen enough."""
    pids: list[int] = []

    def on_partial(number: int, pid: int) -> None:
        pids.append(pid)
        if len(pids) == 2:
            (tmp_path / "first").touch()

    with RayWorkers("local", 2) as workers:
        results = workers.map("waiting", {"folder": str(tmp_path)}, ["first", "never"], on_partial=on_partial)
        number, pid = next(results)
        assert (number, pid in pids) == (0, True)
        results.close()
    assert len(set(pids)) == 2
    assert eventually_ended(pids)
