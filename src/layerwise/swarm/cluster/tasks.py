"""The pieces of a sweep as Ray tasks, which Ray restarts when a process ends. A task returns:

("done", VALUE)                 the result of a shard
("refused", CLASS, MESSAGE)     a `LayerwiseError` was raised
("failed", TRACEBACK)           any other error
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from layerwise import errors
from layerwise.errors import LayerwiseError, SwarmError
from layerwise.swarm.cluster.connection import LOCAL, Connection, cause_of, work_in

DONE, REFUSED, FAILED = "done", "refused", "failed"

MAX_RETRIES = 3
"""How often Ray begins a piece again whose process ended."""

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

    def map(self, opens: str, shared: Any, pieces: Sequence[Any]) -> Iterator[tuple[int, Any]]:
        """Compute every piece, and yield its number and result as it is done.

        `opens` names, as `layerwise.module:function`, what each process calls once with `shared` to get the function of
        a piece. A `LayerwiseError` of a piece is raised, as it would be in this process. Raises `SwarmError` for a
        piece that failed otherwise, and for one whose processes ended again and again.
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
            event = self._ray.get(reference)
        except self._ray.exceptions.RayError as error:
            raise SwarmError(
                f"a piece of the work ended its processes {MAX_RETRIES + 1} times ({cause_of(error)}); what was done "
                "is kept. Give every process more memory (fewer --workers), then run the same command again"
            ) from error
        if event[0] != DONE:
            raise raised(event)
        return event[1]


def carry_out(
    folder: str, paths: tuple[str, ...], key: str, opens: str, shared: Sequence[Any], piece: Any
) -> tuple[Any, ...]:
    import ray
    import torch

    work_in(folder, paths)
    try:
        if key not in _opened:
            _opened.clear()
            torch.set_num_threads(1)
            _opened[key] = function_named(opens)(ray.get(shared[0]))
        return DONE, _opened[key](piece)
    except Exception as error:
        return ending(error)


def function_named(name: str) -> Callable[..., Any]:
    """The function that `layerwise.module:function` names. Raises `SwarmError` for one that is not of layerwise.

    >>> function_named("layerwise.swarm.cluster.tasks:function_named") is function_named
    True
    """
    module, _, attribute = name.partition(":")
    if module.partition(".")[0] != "layerwise" or not attribute.isidentifier():
        raise SwarmError(f"a task runs functions of layerwise, named layerwise.module:function; found {name[:80]!r}")
    function: Callable[..., Any] | None = getattr(import_module(module), attribute, None)
    if not callable(function):
        raise SwarmError(f"{module} has no function {attribute}; a machine may have another version of layerwise")
    return function


def ending(error: BaseException) -> tuple[str, ...]:
    """How a piece ended that raised `error`.

    >>> ending(SwarmError("nobody is there"))
    ('refused', 'SwarmError', 'nobody is there')
    """
    if isinstance(error, LayerwiseError):
        return (REFUSED, type(error).__name__, str(error))
    return (FAILED, "".join(traceback.format_exception(error)))


def available_processors() -> int:
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1


def raised(event: tuple[Any, ...]) -> Exception:
    """The error that ended a piece: of its own class where it is one of layerwise's.

    >>> raised(("refused", "DataError", "no text"))
    DataError('no text')
    """
    if event[0] == REFUSED:
        kind = getattr(errors, event[1], LayerwiseError)
        error: Exception = kind(event[2])
        return error
    return SwarmError(f"a worker failed where it should not have; its own words:\n{event[1]}")
