"""Tasks that carry out the functions of this module, some of which end their process."""

import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from layerwise.errors import PlanError
from layerwise.swarm.cluster.tasks import DONE, ending


def carry_out(
    folder: str, paths: tuple[str, ...], key: str, opens: str, shared: Sequence[Any], piece: Any
) -> tuple[Any, ...]:
    import ray

    try:
        return DONE, FUNCTIONS[opens](ray.get(shared[0]))(piece)
    except Exception as error:
        return ending(error)


def doubling(shared: Mapping[str, Any]) -> Callable[[Any], Any]:
    return lambda piece: shared["times"] * piece


def fatal(shared: Mapping[str, Any]) -> Callable[[Any], Any]:
    def work(piece: Any) -> Any:
        name, deaths = piece
        marks = Path(shared["folder"]) / name
        marks.mkdir(exist_ok=True)
        if len(list(marks.iterdir())) < deaths:
            (marks / f"{time.time_ns()}").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return name

    return work


def refusing(shared: Mapping[str, Any]) -> Callable[[Any], Any]:
    def work(piece: Any) -> Any:
        if piece == "plan":
            raise PlanError("a plan has no layer", text="0-x", position=2)
        raise ZeroDivisionError("one by zero")

    return work


def unopened(shared: Mapping[str, Any]) -> Callable[[Any], Any]:
    raise PlanError("nothing is there")


FUNCTIONS: dict[str, Callable[[Mapping[str, Any]], Callable[[Any], Any]]] = {
    each.__name__: each for each in (doubling, fatal, refusing, unopened)
}
