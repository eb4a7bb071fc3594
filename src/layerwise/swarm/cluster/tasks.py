"""The pieces of a sweep as Ray tasks, which Ray restarts when a process ends."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from layerwise.errors import LayerwiseError, SwarmError
from layerwise.swarm.cluster.connection import LOCAL, Connection, cause_of, work_in

MAX_RETRIES = 3
"""Number of times that Ray retries a piece after its process ended."""

Open: TypeAlias = Callable[[Any], Callable[[Any], Any]]
"""Function that each process calls once with the shared value; it returns the function that computes a piece."""

_WAIT = 1.0

_opened: dict[str, Callable[[Any], Any]] = {}


class RayTasks:
    """Ray tasks on the cluster at `address`, at most `count` at a time. Raises as `Connection` does."""

    def __init__(self, address: str = LOCAL, count: int | None = None, *, accelerators: bool = False) -> None:
        processors = count or available_processors()
        self._connection = Connection(address, processors)
        self._ray = self._connection.ray
        resources = self._ray.cluster_resources()
        self.count = count or max(1, int(resources.get("GPU" if accelerators else "CPU", processors)))
        self._options = {"num_cpus": 1, "max_retries": MAX_RETRIES, "scheduling_strategy": "SPREAD"}
        if accelerators:
            self._options["num_gpus"] = 1
        self._works = 0

    def close(self) -> None:
        self._connection.close()

    def map(self, opens: Open, shared: Any, pieces: Sequence[Any]) -> Iterator[tuple[int, Any]]:
        """Compute every piece, and yield its number and result as it is done.

        A `LayerwiseError` of a piece is raised, as it would be in this process. Raises `SwarmError` for a piece that
        failed otherwise, and for one whose processes ended again and again.
        """
        self._works += 1
        reference = self._ray.put(shared)
        task = self._ray.remote(carry_out).options(**self._options)
        own = (str(Path.cwd()), tuple(sys.path), f"{os.getpid()}/{self._works}", opens, [reference])
        waiting = list(enumerate(pieces))[::-1]
        running: dict[Any, int] = {}
        try:
            while waiting or running:
                while waiting and len(running) < self.count:
                    number, piece = waiting.pop()
                    running[task.remote(*own, piece)] = number
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
            raise SwarmError(f"a worker failed where it should not have; its own words:\n{error}") from error
        except self._ray.exceptions.RayError as error:
            raise SwarmError(
                f"a piece of the work ended its processes {MAX_RETRIES + 1} times ({cause_of(error)}); what was done "
                "is kept. Give every process more memory (fewer --workers), then run the same command again"
            ) from error


def carry_out(folder: str, paths: tuple[str, ...], key: str, opens: Open, shared: Sequence[Any], piece: Any) -> Any:
    import ray
    import torch

    work_in(folder, paths)
    if key not in _opened:
        _opened.clear()
        torch.set_num_threads(1)
        _opened[key] = opens(ray.get(shared[0]))
    return _opened[key](piece)


def available_processors() -> int:
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1
