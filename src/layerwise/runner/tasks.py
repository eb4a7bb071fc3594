"""Tasks of a run. Their results are stored as soon as they are computed, so that a run can be resumed.

This module does not import torch.
"""

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
    """Remaining work, such as 100 training steps: `count` is 100, and `piece` is "training steps".

    `time_one` performs one step and returns its time in seconds. `memory_bytes` is the memory that all steps need in
    addition to that of one step.
    """

    count: float
    piece: str
    time_one: Callable[[], float] | None = None
    memory_bytes: int = 0


@dataclass
class Study:
    """A run as one process sees it.

    In several processes of torchrun, only the first one opens the run. The others only take part in training.
    """

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
        """Compute and store what is missing of a task, and return its complete result."""
        if self.opened is None and not task.collective:
            raise StudyFinishedError(self.folder)
        return task.execute(self)

    def write(self, scores: Sequence[Score] = (), notes: Mapping[str, Sequence[str]] | None = None) -> None:
        """Store scores and notes. They replace all scores and notes of the same measures."""
        for measure, texts in (notes or {}).items():
            self.store.replace_notes(measure, texts)
        self.store.replace_scores({score.measure for score in scores}, scores)


class Task(ABC, Generic[T]):
    """Work whose result a run stores. `study.execute(task)` does the work, or reads the stored result.

    A `collective` task runs in all processes of torchrun. Such tasks must come first.
    """

    collective: ClassVar[bool] = False

    def remaining(self, folder: Path, run: Run | None) -> Remaining | None:
        """Return the work that is not yet stored in the run, or None if there is none or it is unknown."""
        return None

    @abstractmethod
    def execute(self, study: Study) -> T:
        """Compute and store what is missing, and return the complete result."""


@dataclass(frozen=True)
class RowsTask(Task[list[Score]]):
    """Rows that are computed and stored together.

    Args:
        measure: Measure of the rows.
        compute: Function that returns the rows. It is called if none are stored.
        message: Message that is logged before the computation.
        is_own: Function that selects the rows of this task among those of the measure.
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
    """A measurement by a function that stores and resumes its results itself."""

    measure: Callable[[Study], T]

    def execute(self, study: Study) -> T:
        return self.measure(study)


@dataclass(frozen=True)
class PlannedWork(Task[None]):
    """Work that is done by other tasks. It is only needed to estimate the remaining time."""

    count: Callable[[Path, Run | None], Remaining | None]

    def remaining(self, folder: Path, run: Run | None) -> Remaining | None:
        return self.count(folder, run)

    def execute(self, study: Study) -> None:
        """Do nothing."""


@dataclass(frozen=True)
class RoundsTask(Task[dict[Key, list[Score]]], Generic[Key]):
    """Rows of a measure that are computed and stored in rounds.

    Args:
        measure: Measure of the rows.
        pieces: Keys of all rounds.
        key: Function that returns the key of the round to which a row belongs.
        begin: Function that is called once if rounds are missing. It returns the function that computes a round.
        label: Function that returns the label of a round for the progress bar.
        parts: Number of measurements in a round.
        time_one: Function that performs one measurement and returns its time in seconds.
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
