"""An experiment as steps: it opens model and data, says what it is about, asks for units of work, and returns rows.

    def timing(config, reporter, inputs) -> Steps:
        stack, settings = ...                                   opened, and refused where it cannot be
        yield Outline(manifest, says=..., ahead=(rounds,))      what is known before anything is computed
        times = yield from rounds                               a unit: kept, resumed, shared, priced
        return Completed(rows_of_rounds(names, settings, times))     stored when all of it is there

A unit keeps what it has finished in the run folder and does not compute it again. The code between units runs again
whenever a run is resumed: it may depend on the seed, on the options and on what units return, and on nothing else.
What is left to do is said as `Work`: each kind of it measures a piece of itself, and says what all of it will take.
This module needs no torch.
"""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean
from typing import Any, ClassVar, Generic, TypeAlias, TypeVar

from layerwise.errors import MeasureError
from layerwise.experiments.reporter import Reporter
from layerwise.measure.workers import PieceFunction, Spread
from layerwise.results import Manifest, Run, Score, Store

SLOW = 5e9
"""Operations a second of a processor that is slow: work that it does in `SHORT` seconds is not worth a forecast."""

SHORT = 30.0
"""Seconds of work that nobody plans around."""

CALL = 0.01
"""Seconds that a pass of a small model takes, however small it is."""

FEW = 8
"""Examples that are computed first; a batch follows where there is time."""

SHARE = 0.1
"""Of what work will take, what measuring it may take."""


@dataclass(frozen=True, slots=True)
class WorkCost:
    """What work takes: seconds, bytes that stay on disk, and bytes on disk that are gone when it is done.

    `measured_on` says what the seconds were told from: "2 batches".
    """

    seconds: float
    disk_bytes: int = 0
    passing_bytes: int = 0
    measured_on: str = ""


@dataclass(frozen=True, slots=True)
class Work:
    """One kind of work that an experiment has to do.

    `measure(seconds)` does a piece of it, for about so long, and says what all of it will take; it changes neither the
    model nor the run. `memory_bytes` is what the whole of it holds beyond what the piece does. `least()` are the
    seconds that the least piece takes at least, as far as the works before it have told: a work that has less than
    that is not measured, and takes `roughly()` so many seconds. `slow` are the seconds that a slow processor takes for
    all of it: where those of all works are few, none is measured.
    """

    name: str
    measure: Callable[[float], WorkCost]
    memory_bytes: int = 0
    least: Callable[[], float] = lambda: 0.0
    roughly: Callable[[], float] = lambda: 0.0
    slow: float = math.inf


def sampled(
    once: Callable[[int], float], pieces: str, disk_bytes: int = 0, different: float = math.inf
) -> Callable[[float], WorkCost]:
    """A measurement by samples of the work, as many as there is time for, and at least one.

    `once(number)` does a sample and returns the seconds of the whole work as far as the samples so far tell; number 0
    comes before all others, warms up, and tells nothing. `pieces` says what is sampled: "of 148 batches", where the
    number of those that counted stands before it, or of those that are `different` where samples repeat.
    """

    def measure(seconds: float) -> WorkCost:
        first = time.perf_counter()
        once(0)
        number = 0
        while True:
            number += 1
            begun = time.perf_counter()
            estimate = once(number)
            taken = time.perf_counter() - begun
            if is_enough(first, seconds - taken, estimate):
                return WorkCost(estimate, disk_bytes, measured_on=f"{min(number, different)} {pieces}")

    return measure


def repeated(once: Callable[[], float], pieces: str) -> Callable[[float], WorkCost]:
    """A measurement by pieces that are alike: `once()` does one and returns how many of them there are."""
    totals: list[float] = []

    def timed(number: int) -> float:
        begun = time.perf_counter()
        count = once()
        totals.append((time.perf_counter() - begun) * count)
        return mean(totals[1:] or totals)

    return sampled(timed, pieces)


def by_examples(
    once: Callable[[int, int], object], examples: int, batch: int, what: str, times: float = 1.0
) -> Callable[[float], WorkCost]:
    """A measurement by some of the `examples`, each of which is computed so many `times`.

    `once(number, count)` computes so many of them, others for each `number`: few, which warm up, and as many again;
    then up to a `batch`, where there is time for more, since those of a whole batch take less each.
    """
    few = min(examples, FEW)

    def timed(number: int, count: int) -> float:
        begun = time.perf_counter()
        once(number, count)
        return (time.perf_counter() - begun) / count

    def measure(seconds: float) -> WorkCost:
        end = time.perf_counter() + seconds
        timed(0, few)
        each = timed(1, few)
        more = min(examples, batch, int((end - time.perf_counter()) / each))
        each = timed(2, more) if more > few else each
        return WorkCost(times * examples * each, measured_on=f"{max(more, few)} of {examples:,} {what}")

    return measure


def is_enough(begun: float, seconds: float, estimate: float) -> bool:
    """Whether a measurement that has `begun` is over: by its `seconds`, or by its `SHARE` of the `estimate`."""
    return time.perf_counter() - begun > min(seconds, SHARE * estimate)


def is_short(seconds: float) -> bool:
    """Whether what takes a slow processor so many seconds is not worth a forecast.

    >>> is_short(slow_seconds(1e9, 100)), is_short(slow_seconds(1e9, 10_000)), is_short(slow_seconds(1e12, 1))
    (True, False, False)
    """
    return seconds < SHORT


def slow_seconds(operations: float, calls: float) -> float:
    """The seconds that a slow processor takes for so many operations, in so many passes of a model.

    >>> slow_seconds(1e10, 100)
    3.0
    """
    return operations / SLOW + calls * CALL


def total(costs: Iterable[WorkCost]) -> WorkCost:
    """The sum; what is gone when its work is done counts once, where it is most.

    >>> total([WorkCost(1.0, 5, 100), WorkCost(2.0, 5, 70)])
    WorkCost(seconds=3.0, disk_bytes=10, passing_bytes=100, measured_on='')
    """
    costs = list(costs)
    return WorkCost(
        sum(each.seconds for each in costs),
        sum(each.disk_bytes for each in costs),
        max((each.passing_bytes for each in costs), default=0),
    )


T = TypeVar("T")


@dataclass
class UnitSession:
    """One process at work on an experiment: the folder of its run, who is informed, and which workers there are.

    A run is `opened` in the first process alone; those that only help to train have none.
    """

    folder: Path
    reporter: Reporter
    opened: Run | None = None
    spread: Spread = field(default_factory=Spread)

    @property
    def run(self) -> Run:
        """The run."""
        assert self.opened is not None, "the first process alone has the rows"
        return self.opened

    @property
    def store(self) -> Store:
        """The rows of the run."""
        return self.run.store

    def watch(self, label: str) -> Callable[[float], None]:
        """A function that reports the share that is done of what is called `label`, with the seconds that are left.

        What is left takes as long as what was done since the first call, share for share.
        """
        begun: list[tuple[float, float]] = []

        def progress(share: float) -> None:
            now = time.monotonic()
            begun.append((now, share))
            at, first = begun[0]
            left = (now - at) * (1 - share) / (share - first) if share > first else None
            self.reporter.progress(label, min(1.0, share), left)

        return progress


class Unit(ABC, Generic[T]):
    """Work that a run keeps. `result = yield from unit` has it carried out, or read where it is there already.

    A `collective` unit is carried out by every process that torchrun has started; such units come before the others.
    """

    collective: ClassVar[bool] = False

    def __iter__(self) -> Generator[Unit[Any], Any, T]:
        """Ask whoever carries the experiment out for the result."""
        result: T = yield self
        return result

    def works(self, folder: Path, run: Run | None) -> Iterator[Work]:
        """What is left to do of it, each kind of work able to measure a piece of itself.

        `run` holds the rows that are stored, if there is one in `folder`.
        """
        return iter(())

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
    if there is one. `ahead` are the units that are certain to come, whose cost is said beforehand; work whose price
    tells that another cannot be measured comes before it. `refuse(folder)` raises for what lies in the way.
    `discard(folder)` removes what `--overwrite` removes beside the rows. `pieces` carries out in a worker what units
    hand out. `models(folder)` are those that it leaves in the run folder, by arm and seed. `results(run)` are tables
    before the summary on a terminal. `is_empty(run)` tells whether a refusal leaves nothing to report. `lasts` says
    that a complete run stays complete: nothing that is installed or trained later adds to it. `chosen` are options that
    the experiment chose where they were not given; the run keeps them, so that the same command chooses the same.
    """

    manifest: Manifest
    says: Callable[[], Iterable[str]]
    recipe: object = None
    folder: Path | None = None
    ahead: Sequence[Unit[Any]] = ()
    refuse: Callable[[Path], None] = _nothing
    discard: Callable[[Path], None] = _nothing
    pieces: PieceFunction | None = None
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


def carry_out(steps: Steps, session: UnitSession, measures: Callable[[], bool]) -> Completed | None:
    """Carry the units out, one after the other, behind the outline; returns the rows.

    What a unit raises is raised in the experiment, which may go on with something else. `measures()` is called once,
    before the first unit that is not collective: where it says no, the others are left to another process, and there
    are no rows.
    """
    is_measuring = False
    try:
        unit = steps.send(session)
        while True:
            assert isinstance(unit, Unit), "the outline comes once"
            if not unit.collective and not is_measuring:
                is_measuring = True
                if not measures():
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
