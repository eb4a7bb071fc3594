"""Functions for Ray tasks, some of which kill their process."""

import os
import signal
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from layerwise.errors import PlanError


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
