"""Ray tasks for the shards of a sweep; Ray retries a task whose process ended."""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from layerwise.errors import LayerwiseError, SwarmError
from layerwise.swarm.cluster.connection import LOCAL, Connection, format_cause, use_environment

MAX_RETRIES = 3

OpenTask: TypeAlias = Callable[[Any], Callable[[Any], Any]]
"""Function that each process calls once with the shared value. It returns a function that computes one task."""

_WAIT = 1.0

_MAPS = itertools.count()  # of all instances in this process, since they may share workers

_opened: dict[str, Callable[[Any], Any]] = {}


class RayTasks:
    """Runs tasks on the Ray cluster at `address`, at most `count` at a time. Raises the errors of `Connection`."""

    def __init__(self, address: str = LOCAL, count: int | None = None, *, accelerators: bool = False) -> None:
        processors = count or count_cpus()
        self._connection = Connection(address, processors)
        self._ray = self._connection.ray
        resources = self._ray.cluster_resources()
        self.count = count or max(1, int(resources.get("GPU" if accelerators else "CPU", processors)))
        self._options = {"num_cpus": 1, "max_retries": MAX_RETRIES, "scheduling_strategy": "SPREAD"}
        if accelerators:
            self._options["num_gpus"] = 1

    def close(self) -> None:
        self._connection.close()

    def map(self, open_task: OpenTask, shared: Any, tasks: Sequence[Any]) -> Iterator[tuple[int, Any]]:
        """Run every task and yield its number and result as it finishes.

        Raises:
            LayerwiseError: If a task raises a `LayerwiseError`.
            SwarmError: If a task raises another exception or exhausts its retries.
        """
        reference = self._ray.put(shared)
        remote = self._ray.remote(run_task).options(**self._options)
        shared_arguments = (
            str(Path.cwd()),
            tuple(sys.path),
            f"{os.getpid()}/{next(_MAPS)}",
            open_task,
            [reference],
        )
        waiting = list(enumerate(tasks))[::-1]
        running: dict[Any, int] = {}
        try:
            while waiting or running:
                while waiting and len(running) < self.count:
                    number, task = waiting.pop()
                    running[remote.remote(*shared_arguments, task)] = number
                ready, _ = self._ray.wait(list(running), timeout=_WAIT)
                for each in ready:
                    number = running.pop(each)
                    yield number, self._result(each)
        finally:
            for each in running:
                self._ray.cancel(each, force=True)

    def _result(self, reference: Any) -> Any:
        try:
            return self._ray.get(reference)
        except self._ray.exceptions.RayTaskError as error:
            if isinstance(error.cause, LayerwiseError):
                raise error.cause from None
            raise SwarmError(f"A worker failed unexpectedly:\n{error}") from error
        except self._ray.exceptions.RayError as error:
            raise SwarmError(
                f"A task failed {MAX_RETRIES + 1} times because its process ended ({format_cause(error)}). Finished "
                "tasks are kept: give each process more memory (fewer --workers) and run the same command again."
            ) from error


def run_task(
    folder: str, paths: tuple[str, ...], key: str, open_task: OpenTask, shared: Sequence[Any], task: Any
) -> Any:
    import ray
    import torch

    use_environment(folder, paths)
    if key not in _opened:
        _opened.clear()
        torch.set_num_threads(1)
        _opened[key] = open_task(ray.get(shared[0]))
    return _opened[key](task)


def count_cpus() -> int:
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1
