"""An experiment as steps: it opens model and data, describes itself, asks for units of work, and returns rows.

    def timing(config, reporter, inputs) -> Steps:
        stack, settings = ...                                   opened, or refused
        yield Outline(manifest, says=..., ahead=(rounds,))      what is known before anything is computed
        times = yield from rounds                               a unit: stored, resumed, shared, counted
        return Completed(rows_of_rounds(names, settings, times))

Units store what they finish. The code between units runs again on every resume, so it may depend only on the seed, the
options and what units return. This module needs no torch.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeAlias, TypeVar

from layerwise.errors import MeasureError
from layerwise.results import Manifest, Run, Score, Store
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
class UnitSession:
    """One process at work on an experiment; only the first has `opened` a run, others only help to train."""

    folder: Path
    reporter: Reporter
    opened: Run | None = None

    @property
    def run(self) -> Run:
        """The run."""
        assert self.opened is not None, "the first process alone has the rows"
        return self.opened

    @property
    def store(self) -> Store:
        return self.run.store


class Unit(ABC, Generic[T]):
    """Work that a run stores; `result = yield from unit` carries it out or reads the stored result.

    Every torchrun process carries out a `collective` unit; such units come first.
    """

    collective: ClassVar[bool] = False

    def __iter__(self) -> Generator[Unit[Any], Any, T]:
        result: T = yield self
        return result

    def remaining(self, folder: Path, run: Run | None) -> Remaining | None:
        """Count what is left to do, given the stored rows of `run`; None if nothing is left or it is unknown."""
        return None

    @abstractmethod
    def carry_out(self, session: UnitSession) -> T:
        """Do what is missing, keep it as soon as it is there, and return all of it."""


def _nothing(_: Any) -> None:
    """For what most experiments have none of."""


def has_no_rows(run: Run) -> bool:
    return not run.store.scores()


@dataclass(frozen=True)
class Outline:
    """What is known of an experiment when its model and data are open, before anything is computed.

    `manifest` is its provenance; `says` describes the work in sentences. `recipe` holds plain values that name the run
    folder with the manifest; `folder` is an existing run that the rows belong to. `ahead` are the units that are
    certain to come. `refuse(folder)` raises for conflicting content, `discard(folder)` removes what `--overwrite` does
    besides rows. `models(folder)` are the models in the run, by arm and seed; `results(run)` are tables for the
    terminal. `is_empty(run)` tells if nothing is left to report after an error. `lasts` means a complete run stays
    complete. `chosen` are options that the experiment chose; the run keeps them for the same command. With
    `is_estimated` the run says before it begins how long the rest takes, and how much memory.
    """

    manifest: Manifest
    says: Callable[[], Iterable[str]]
    recipe: object = None
    folder: Path | None = None
    ahead: Sequence[Unit[Any]] = ()
    refuse: Callable[[Path], None] = _nothing
    discard: Callable[[Path], None] = _nothing
    models: Callable[[Path], Mapping[str, Path]] = lambda _: {}
    results: Callable[[Run], Sequence[str]] = lambda _: ()
    is_empty: Callable[[Run], bool] = has_no_rows
    lasts: bool = True
    chosen: Mapping[str, object] = field(default_factory=dict)
    is_estimated: bool = False


@dataclass(frozen=True)
class Completed:
    """The scores and notes (by subject) of a complete experiment, which replace those of the same measures.

    A `refusal` is raised once they are stored; the experiment is then incomplete and can be resumed.
    """

    scores: Sequence[Score] = ()
    notes: Mapping[str, Sequence[str]] = field(default_factory=dict)
    refusal: MeasureError | None = None

    def store(self, store: Store) -> None:
        for name, texts in self.notes.items():
            store.replace_notes(name, texts)
        for measure in dict.fromkeys(score.measure for score in self.scores):
            store.replace_scores(measure, [score for score in self.scores if score.measure == measure])


Steps: TypeAlias = Generator[Outline | Unit[Any], Any, Completed]
"""An experiment under way: its outline first, then one unit after the other."""


def carry_out(steps: Steps, session: UnitSession, *, collective_only: bool = False) -> Completed | None:
    """Carry the units out in order and return the rows.

    Errors of a unit are raised inside the experiment, which may continue. `collective_only` stops before the first unit
    that is not collective and returns None.
    """
    try:
        unit = steps.send(session)
        while True:
            assert isinstance(unit, Unit), "the outline comes once"
            if collective_only and not unit.collective:
                return None
            try:
                result = unit.carry_out(session)
            except Exception as error:
                unit = steps.throw(error)
            else:
                unit = steps.send(result)
    except StopIteration as end:
        finished: Completed = end.value
        return finished
