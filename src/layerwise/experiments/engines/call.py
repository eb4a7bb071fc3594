"""What is computed at once: rows that are kept as a whole, and measurements that keep what they finish themselves.

`ExpectedWork` says what units will take that are not known before others have ended.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from layerwise.experiments.engines.steps import Unit, UnitSession
from layerwise.experiments.engines.work import Work
from layerwise.results import Run
from layerwise.results.rows import Score

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
    """Work that is certain to come, whatever the units are that do it: `left(folder)` gives what is left of it."""

    left: Callable[[Path], Iterator[Work]]

    def works(self, folder: Path, run: Run | None) -> Iterator[Work]:
        """What is left."""
        return self.left(folder)

    def carry_out(self, session: UnitSession) -> None:
        """Nothing: other units do the work."""
