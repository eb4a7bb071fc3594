"""Tasks of a run: work that is stored as soon as it is done, so that a run can be resumed. Loads no torch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Generic, TypeVar

from layerwise.results import Run, Score, Store
from layerwise.runner.reporter import Reporter
from layerwise.runner.verb import StudyFinishedError

T = TypeVar("T")
Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Remaining:
    """Remaining work: `count` pieces, such as training steps.

    `time_one()` returns the seconds of one piece, `memory_bytes` is the memory that all pieces need beyond one.
    """

    count: float
    piece: str
    time_one: Callable[[], float] | None = None
    memory_bytes: int = 0


@dataclass
class Study:
    """One process at work on a run; only the first process has an open run, the others help to train."""

    folder: Path
    reporter: Reporter
    opened: Run | None = None

    @property
    def run(self) -> Run:
        assert self.opened is not None, "only the first process has rows"
        return self.opened

    @property
    def store(self) -> Store:
        return self.run.store

    def execute(self, task: Task[T]) -> T:
        """Do the missing part of a task, store it, and return the complete result.

        Raises:
            StudyFinishedError: In a process that only helps to train, before the first task that is not collective.
        """
        if self.opened is None and not task.collective:
            raise StudyFinishedError(self.folder)
        return task.execute(self)

    def write(self, scores: Sequence[Score] = (), notes: Mapping[str, Sequence[str]] | None = None) -> None:
        """Replace all scores of the measures in `scores`, and the notes by measure."""
        for measure, texts in (notes or {}).items():
            self.store.replace_notes(measure, texts)
        self.store.replace_scores({score.measure for score in scores}, scores)


class Task(ABC, Generic[T]):
    """Work that a run stores; `study.execute(task)` does it or reads the stored result.

    Every torchrun process runs a `collective` task; such tasks come first.
    """

    collective: ClassVar[bool] = False

    def remaining(self, folder: Path, run: Run | None) -> Remaining | None:
        """Count the remaining work, given the stored rows of `run`; None if there is none or it is unknown."""
        return None

    @abstractmethod
    def execute(self, study: Study) -> T:
        """Do the missing part, store it as soon as it is done, and return the complete result."""


@dataclass(frozen=True)
class RowsTask(Task[list[Score]]):
    """Rows that are computed once per run, such as the timings of a machine.

    Args:
        measure: Measure of the rows.
        compute: Returns the rows if none are stored.
        message: Logged before computing.
        is_own: Selects the rows of this task among those of the measure.
    """

    measure: str
    compute: Callable[[], Iterable[Score]]
    message: str = ""
    is_own: Callable[[Score], bool] = lambda row: True

    def execute(self, study: Study) -> list[Score]:
        stored = study.store.scores(self.measure)
        rows = [row for row in stored if self.is_own(row)]
        if not rows:
            if self.message:
                study.reporter.log(self.message)
            rows = list(self.compute())
            study.store.replace_scores(self.measure, [*stored, *rows])
        return rows


@dataclass(frozen=True)
class MeasureTask(Task[T], Generic[T]):
    """A measurement that stores and resumes its own results."""

    measure: Callable[[Study], T]

    def execute(self, study: Study) -> T:
        return self.measure(study)


@dataclass(frozen=True)
class PlannedWork(Task[None]):
    """Work that is counted in advance and done by other tasks."""

    count: Callable[[Path, Run | None], Remaining | None]

    def remaining(self, folder: Path, run: Run | None) -> Remaining | None:
        return self.count(folder, run)

    def execute(self, study: Study) -> None:
        """Do nothing."""


@dataclass(frozen=True)
class RoundsTask(Task[dict[Key, list[Score]]], Generic[Key]):
    """Rows of a measure that are computed and stored piece by piece.

    Args:
        measure: Measure of the rows.
        pieces: All pieces.
        key: Returns the piece of a row.
        begin: Called once if a piece is missing; returns the function that computes a piece.
        label: Names a piece in the progress bar.
        parts: Number of parts of a piece.
        time_one: Returns the seconds of one part.
    """

    measure: str
    pieces: Sequence[Key]
    key: Callable[[Score], Key]
    begin: Callable[[], Callable[[Key], Iterable[Score]]]
    label: Callable[[Key], str] = lambda piece: "rounds"
    parts: int = 1
    time_one: Callable[[], float] | None = None

    def execute(self, study: Study) -> dict[Key, list[Score]]:
        stored = self._read(study.run)
        missing = [piece for piece in self.pieces if piece not in stored]
        compute = self.begin() if missing else None
        for number, piece in enumerate(missing, start=len(self.pieces) - len(missing) + 1):
            assert compute is not None
            stored[piece] = list(compute(piece))
            study.store.replace_scores(self.measure, [row for rows in stored.values() for row in rows])
            study.reporter.progress(self.label(piece), number / len(self.pieces))
        return stored

    def remaining(self, folder: Path, run: Run | None) -> Remaining | None:
        missing = len(set(self.pieces) - self._read(run).keys())
        return Remaining((missing + 1) * self.parts, "measurements", self.time_one) if missing else None

    def _read(self, run: Run | None) -> dict[Key, list[Score]]:
        stored: dict[Key, list[Score]] = {}
        for row in [] if run is None else run.store.scores(self.measure):
            stored.setdefault(self.key(row), []).append(row)
        return stored
