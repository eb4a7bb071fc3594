"""What is computed at once: rows that are kept as a whole, and measurements that keep what they finish themselves.

Rounds are pieces that are measured in turn and each give rows, which are stored as the piece ends: a run that was
stopped goes on with the next piece, and one that asks for more adds them. `ExpectedWork` counts what units will do that
are not known before others have ended.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from layerwise.experiments.engines.steps import Remaining, Unit, UnitSession
from layerwise.results import Run, Score

T = TypeVar("T")


def _every(row: Score) -> bool:
    return True


@dataclass(frozen=True)
class CallUnit(Unit[list[Score]]):
    """Rows that are computed once in the life of a run, such as what a machine takes, or a choice that depends on it.

    They are the rows of `measure` that are `own`: those that are stored or, where there are none, what `compute()`
    gives. Other rows of the measure stay. `says` is logged before anything is computed.
    """

    measure: str
    compute: Callable[[], Iterable[Score]]
    says: str = ""
    own: Callable[[Score], bool] = _every

    def carry_out(self, session: UnitSession) -> list[Score]:
        """Read the rows, or compute and store them."""
        stored = session.store.scores(self.measure)
        kept = [row for row in stored if self.own(row)]
        if not kept:
            if self.says:
                session.reporter.log(self.says)
            kept = list(self.compute())
            session.store.replace_scores(self.measure, [*stored, *kept])
        return kept


@dataclass(frozen=True)
class MeasureUnit(Unit[T], Generic[T]):
    """A measurement that keeps what it finishes by itself, and does not do again what is there: `measure(session)`."""

    measure: Callable[[UnitSession], T]

    def carry_out(self, session: UnitSession) -> T:
        """Measure what is missing."""
        return self.measure(session)


@dataclass(frozen=True)
class ExpectedWork(Unit[None]):
    """Work that is certain to come, whatever the units are that do it: `left(folder, run)` counts it."""

    left: Callable[[Path, Run | None], Remaining | None]

    def remaining(self, folder: Path, run: Run | None) -> Remaining | None:
        """Count what is left."""
        return self.left(folder, run)

    def carry_out(self, session: UnitSession) -> None:
        """Nothing: other units do the work."""


Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True)
class RoundsUnit(Unit[dict[Key, list[Score]]], Generic[Key]):
    """The rows of `measure` by piece: those of `pieces` that are missing are measured, and all that are stored come.

    `key(row)` tells which piece a row is of. `begin()` is called once, where a piece is missing: it opens and warms up
    what is needed, and returns the function that measures a piece. `label(piece)` is what progress is called. A piece
    consists of `parts`, one of which `time_one()` carries out and times.
    """

    measure: str
    pieces: Sequence[Key]
    key: Callable[[Score], Key]
    begin: Callable[[], Callable[[Key], Iterable[Score]]]
    label: Callable[[Key], str] = lambda piece: "rounds"
    parts: int = 1
    time_one: Callable[[], float] | None = None

    def carry_out(self, session: UnitSession) -> dict[Key, list[Score]]:
        """Measure what is missing, piece after piece."""
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
        """Count the parts of the pieces that are left, and of one more that warms up."""
        left = len(set(self.pieces) - self._kept(run).keys())
        return Remaining((left + 1) * self.parts, "measurements", self.time_one) if left else None

    def _kept(self, run: Run | None) -> dict[Key, list[Score]]:
        kept: dict[Key, list[Score]] = {}
        for row in [] if run is None else run.store.scores(self.measure):
            kept.setdefault(self.key(row), []).append(row)
        return kept
