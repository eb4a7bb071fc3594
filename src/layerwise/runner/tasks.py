"""The tasks of a run: work that is stored as it ends, resumed and counted. Needs no torch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Generic, TypeVar

from layerwise.results import Run, Store
from layerwise.runner.reporter import Reporter


@dataclass(frozen=True, slots=True)
class Remaining:
    """Remaining work: `count` pieces, such as training steps.

    `time_one()` returns the seconds of one piece; `memory_bytes` is what all pieces hold beyond one.
    """

    count: float
    piece: str
    time_one: Callable[[], float] | None = None
    memory_bytes: int = 0


T = TypeVar("T")


@dataclass
class TaskSession:
    """One process at work on an experiment; only the first has `opened` a run, others only help to train."""

    folder: Path
    reporter: Reporter
    opened: Run | None = None

    @property
    def run(self) -> Run:
        assert self.opened is not None, "the first process alone has the rows"
        return self.opened

    @property
    def store(self) -> Store:
        return self.run.store


class Task(ABC, Generic[T]):
    """Work that a run stores; `study.execute(task)` carries it out or reads the stored result.

    Every torchrun process carries out a `collective` task; such tasks come first.
    """

    collective: ClassVar[bool] = False

    def remaining(self, folder: Path, run: Run | None) -> Remaining | None:
        """Count what is left to do, given the stored rows of `run`; None if nothing is left or it is unknown."""
        return None

    @abstractmethod
    def carry_out(self, session: TaskSession) -> T:
        """Do what is missing, keep it as soon as it is there, and return all of it."""
