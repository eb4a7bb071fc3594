"""Units that compute rows once, and rounds whose pieces are stored as they end, so that a run resumes or extends."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from layerwise.results import Run, Score
from layerwise.runner.tasks import Remaining, Task, TaskSession

T = TypeVar("T")


def _every(row: Score) -> bool:
    return True


@dataclass(frozen=True)
class CallUnit(Task[list[Score]]):
    """Rows that are computed once in the life of a run, such as a machine's timings.

    They are the rows of `measure` for which `own` holds: the stored ones or, if there are none, the result of
    `compute()`. Other rows of the measure stay. `says` is logged before computing.
    """

    measure: str
    compute: Callable[[], Iterable[Score]]
    says: str = ""
    own: Callable[[Score], bool] = _every

    def carry_out(self, session: TaskSession) -> list[Score]:
        stored = session.store.scores(self.measure)
        kept = [row for row in stored if self.own(row)]
        if not kept:
            if self.says:
                session.reporter.log(self.says)
            kept = list(self.compute())
            session.store.replace_scores(self.measure, [*stored, *kept])
        return kept


@dataclass(frozen=True)
class MeasureUnit(Task[T], Generic[T]):
    """A measurement that keeps what it finishes by itself, and does not do again what is there: `measure(session)`."""

    measure: Callable[[TaskSession], T]

    def carry_out(self, session: TaskSession) -> T:
        return self.measure(session)


@dataclass(frozen=True)
class ExpectedWork(Task[None]):
    """Work that is certain to come, whatever the units are that do it: `left(folder, run)` counts it."""

    left: Callable[[Path, Run | None], Remaining | None]

    def remaining(self, folder: Path, run: Run | None) -> Remaining | None:
        return self.left(folder, run)

    def carry_out(self, session: TaskSession) -> None:
        """Nothing: other units do the work."""


Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True)
class RoundsUnit(Task[dict[Key, list[Score]]], Generic[Key]):
    """The rows of `measure` by piece: missing `pieces` are measured, and all stored ones are returned.

    `key(row)` returns the piece of a row. `begin()` is called once if a piece is missing, and returns the function that
    measures one. `label(piece)` names it in progress. A piece has `parts`, one of which `time_one()` times.
    """

    measure: str
    pieces: Sequence[Key]
    key: Callable[[Score], Key]
    begin: Callable[[], Callable[[Key], Iterable[Score]]]
    label: Callable[[Key], str] = lambda piece: "rounds"
    parts: int = 1
    time_one: Callable[[], float] | None = None

    def carry_out(self, session: TaskSession) -> dict[Key, list[Score]]:
        kept = self._kept(session.run)
        missing = [piece for piece in self.pieces if piece not in kept]
        once = self.begin() if missing else None
        for number, piece in enumerate(missing, start=len(self.pieces) - len(missing) + 1):
            assert once is not None
            kept[piece] = list(once(piece))
            session.store.replace_scores(self.measure, [row for rows in kept.values() for row in rows])
            session.reporter.progress(self.label(piece), number / len(self.pieces))
        return kept

    def remaining(self, folder: Path, run: Run | None) -> Remaining | None:
        left = len(set(self.pieces) - self._kept(run).keys())
        return Remaining((left + 1) * self.parts, "measurements", self.time_one) if left else None

    def _kept(self, run: Run | None) -> dict[Key, list[Score]]:
        kept: dict[Key, list[Score]] = {}
        for row in [] if run is None else run.store.scores(self.measure):
            kept.setdefault(self.key(row), []).append(row)
        return kept
