"""An experiment as steps: it opens model and data, says what it is about, asks for units of work, and returns rows.

    def timing(config, reporter, inputs) -> Steps:
        stack, settings = ...                                   opened, and refused where it cannot be
        yield Outline(manifest, says=..., ahead=(rounds,))      what is known before anything is computed
        times = yield from rounds                               a unit: kept, resumed, shared, counted
        return Completed(rows_of_rounds(names, settings, times))     stored when all of it is there

A unit keeps what it has finished in the run folder and does not compute it again. The code between units runs again
whenever a run is resumed: it may depend on the seed, on the options and on what units return, and on nothing else.
What is left to do is counted as `Remaining`. This module needs no torch.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeAlias, TypeVar

from layerwise.errors import MeasureError
from layerwise.experiments.reporter import Reporter
from layerwise.results import Manifest, Run, Score, Store


@dataclass(frozen=True, slots=True)
class Remaining:
    """What an experiment has left to do: `count` pieces, such as training steps.

    `time_one()` carries a piece out on the side and returns its seconds, where that is cheap. `memory_bytes` is what
    all pieces hold at once beyond what one holds.
    """

    count: float
    piece: str
    time_one: Callable[[], float] | None = None
    memory_bytes: int = 0


T = TypeVar("T")


@dataclass
class UnitSession:
    """One process at work on an experiment: the folder of its run, and who is informed.

    A run is `opened` in the first process alone; those that only help to train have none.
    """

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
        """The rows of the run."""
        return self.run.store


class Unit(ABC, Generic[T]):
    """Work that a run keeps. `result = yield from unit` has it carried out, or read where it is there already.

    A `collective` unit is carried out by every process that torchrun has started; such units come before the others.
    """

    collective: ClassVar[bool] = False

    def __iter__(self) -> Generator[Unit[Any], Any, T]:
        """Ask whoever carries the experiment out for the result."""
        result: T = yield self
        return result

    def remaining(self, folder: Path, run: Run | None) -> Remaining | None:
        """Count what is left to do of it; None where nothing is, or nobody can tell.

        `run` holds the rows that are stored, if there is one in `folder`.
        """
        return None

    @abstractmethod
    def carry_out(self, session: UnitSession) -> T:
        """Do what is missing, keep it as soon as it is there, and return all of it."""


def _nothing(_: Any) -> None:
    """For what most experiments have none of."""


def has_no_rows(run: Run) -> bool:
    """Whether the run holds nothing that a report could show."""
    return not run.store.scores()


@dataclass(frozen=True)
class Outline:
    """What is known of an experiment when its model and data are open, before anything is computed.

    `manifest` is its provenance. `says` gives what will be computed from what, in sentences. `recipe` holds plain
    values that name the run folder beside the manifest. `folder` is that of an existing run which the rows belong to,
    if there is one. `ahead` are the units that are certain to come, whose work is counted beforehand. `refuse(folder)`
    raises for what lies in the way. `discard(folder)` removes what `--overwrite` removes beside the rows.
    `models(folder)` are those that it leaves in the run folder, by arm and seed. `results(run)` are tables before the
    summary on a terminal. `is_empty(run)` tells whether a refusal leaves nothing to report. `lasts` says that a
    complete run stays complete: nothing that is installed or trained later adds to it. `chosen` are options that the
    experiment chose where they were not given; the run keeps them, so that the same command chooses the same.
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


@dataclass(frozen=True)
class Completed:
    """What an experiment returns when it is complete: its scores, and notes by what they are about.

    They take the place of those of the same measures. With a `refusal` the experiment ends as incomplete once they are
    stored: the refusal is raised, and the same command goes on.
    """

    scores: Sequence[Score] = ()
    notes: Mapping[str, Sequence[str]] = field(default_factory=dict)
    refusal: MeasureError | None = None

    def store(self, store: Store) -> None:
        """Put them into the run."""
        for name, texts in self.notes.items():
            store.replace_notes(name, texts)
        for measure in dict.fromkeys(score.measure for score in self.scores):
            store.replace_scores(measure, [score for score in self.scores if score.measure == measure])


Steps: TypeAlias = Generator[Outline | Unit[Any], Any, Completed]
"""An experiment under way: its outline first, then one unit after the other."""


def carry_out(steps: Steps, session: UnitSession, *, collective_only: bool = False) -> Completed | None:
    """Carry the units out, one after the other, behind the outline; returns the rows.

    What a unit raises is raised in the experiment, which may go on with something else. If `collective_only`, it ends
    before the first unit that is not collective, without rows: that is left to another process.
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
