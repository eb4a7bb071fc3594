"""Ray tasks finish every task when workers fail, and re-raise a task's exception."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from layerwise.errors import PlanError, SwarmError
from layerwise.swarm.cluster.tasks import MAX_RETRIES, RayTasks
from swarm.cluster import trial
from swarm.cluster.processes import descendants

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore"), pytest.mark.usefixtures("trials")]


@pytest.fixture(scope="module")
def two(ray: None) -> Iterator[RayTasks]:
    tasks = RayTasks("local", 2)
    yield tasks
    tasks.close()


def test_every_task_returns(two: RayTasks) -> None:
    shared = {"times": 10}
    assert dict(two.map(trial.doubling, shared, [0, 1, 2, 3, 4])) == {number: 10 * number for number in range(5)}
    assert dict(two.map(trial.doubling, {"times": 3}, [7])) == {0: 21}
    assert dict(two.map(trial.doubling, shared, [])) == {}


def test_clusters_of_one_process_do_not_mix_their_tasks(two: RayTasks) -> None:
    """A worker that two instances share opens the tasks of each."""
    dict(two.map(trial.doubling, {"times": 2}, [1]))
    for times in (5, 7):
        assert dict(RayTasks("local", 2).map(trial.doubling, {"times": times}, [1, 1])) == {0: times, 1: times}


def test_shared_values_are_sent_once(two: RayTasks, monkeypatch: pytest.MonkeyPatch) -> None:
    put, sent = two._ray.put, list[Any]()
    monkeypatch.setattr(two._ray, "put", lambda value: sent.append(value) or put(value))
    shared: dict[str, Any] = {"times": 2, "bytes": b"\0" * 1_000_000}
    assert dict(two.map(trial.doubling, shared, [1, 2, 3])) == {0: 2, 1: 4, 2: 6}
    assert sent == [shared]


def test_a_task_is_retried_after_its_process_fails(two: RayTasks, tmp_path: Path) -> None:
    pieces = [("a", 0), ("b", 2), ("c", 0)]
    assert dict(two.map(trial.fatal, {"folder": str(tmp_path)}, pieces)) == {0: "a", 1: "b", 2: "c"}


def test_a_task_that_kills_its_processes_fails(two: RayTasks, tmp_path: Path) -> None:
    with pytest.raises(SwarmError, match=rf"failed {MAX_RETRIES + 1} times .*: give each process more"):
        list(two.map(trial.fatal, {"folder": str(tmp_path)}, [("bad", 99)]))
    assert len(list((tmp_path / "bad").iterdir())) == MAX_RETRIES + 1
    assert dict(two.map(trial.doubling, {"times": 2}, [4])) == {0: 8}


def test_task_errors_keep_their_type(two: RayTasks) -> None:
    with pytest.raises(PlanError, match="a plan has no layer"):
        list(two.map(trial.refusing, {}, ["plan"]))
    with pytest.raises(SwarmError, match="ZeroDivisionError: one by zero"):
        list(two.map(trial.refusing, {}, ["other"]))
    with pytest.raises(PlanError, match="nothing is there"):
        list(two.map(trial.unopened, {}, [1]))
    assert dict(two.map(trial.doubling, {"times": 2}, [4])) == {0: 8}


def test_a_local_cluster_starts_no_unneeded_process(two: RayTasks) -> None:
    commands = [Path(f"/proc/{process}/cmdline").read_text() for process in descendants(os.getpid())]
    assert any("raylet" in command for command in commands)
    assert not [command for command in commands if "monitor.py" in command]
    assert all("--minimal" in command for command in commands if "dashboard/agent.py" in command)
