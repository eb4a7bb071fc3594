"""A worker that carries out the functions of this module, some of which end it."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from layerwise.errors import PlanError
from layerwise.swarm.cluster.workers import OPENED, Worker, ending

Emit = Callable[[Any], None]


class TrialWorker(Worker):
    """A worker of functions of this module, which takes pieces as `layerwise`'s own does."""

    def open(self, opens: str, shared: Mapping[str, Any]) -> tuple[Any, ...]:
        try:
            self._function = FUNCTIONS[opens](shared)
        except Exception as error:
            return ending(error)
        return (OPENED,)


def doubling(shared: Mapping[str, Any]) -> Callable[[Any, Emit], Any]:
    def double(piece: Any, emit: Emit) -> Any:
        for step in range(piece):
            emit(step)
        return shared["times"] * piece

    return double


def fatal(shared: Mapping[str, Any]) -> Callable[[Any, Emit], Any]:
    """A piece is `(name, deaths)`: its worker is killed until so many marks of it are in the folder."""

    def work(piece: Any, emit: Emit) -> Any:
        name, deaths = piece
        marks = Path(shared["folder"]) / name
        marks.mkdir(exist_ok=True)
        if len(list(marks.iterdir())) < deaths:
            (marks / f"{time.time_ns()}").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return name

    return work


def halting(shared: Mapping[str, Any]) -> Callable[[Any, Emit], Any]:
    """A piece is a list of numbers: each is said, and once two of them are heard, as marks in the folder show, the
    worker dies."""

    def work(piece: Any, emit: Emit) -> Any:
        for count, number in enumerate(piece):
            if count == 2:
                _wait_for(*(Path(shared["folder"]) / f"{said}" for said in piece[:2]))
                os.kill(os.getpid(), signal.SIGKILL)
            emit(number)
        return len(piece)

    return work


def waiting(shared: Mapping[str, Any]) -> Callable[[Any, Emit], Any]:
    """A piece is the name of a file: the process says its number, and waits until the file is there."""

    def work(piece: Any, emit: Emit) -> Any:
        emit(os.getpid())
        _wait_for(Path(shared["folder"]) / piece)
        return os.getpid()

    return work


def _wait_for(*files: Path) -> None:
    while not all(file.exists() for file in files):
        time.sleep(0.01)


def refusing(shared: Mapping[str, Any]) -> Callable[[Any, Emit], Any]:
    def work(piece: Any, emit: Emit) -> Any:
        if piece == "plan":
            raise PlanError("a plan has no layer", text="0-x", position=2)
        raise ZeroDivisionError("one by zero")

    return work


def unopened(shared: Mapping[str, Any]) -> Callable[[Any, Emit], Any]:
    raise PlanError("nothing is there")


def dying(shared: Mapping[str, Any]) -> Callable[[Any, Emit], Any]:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


FUNCTIONS: dict[str, Callable[[Mapping[str, Any]], Callable[[Any, Emit], Any]]] = {
    each.__name__: each for each in (doubling, fatal, halting, waiting, refusing, unopened, dying)
}
