"""Work that is left to do, and what it will take: each kind of work measures a piece of itself.

This module needs no torch.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from statistics import mean

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
    that is not measured. `slow` are the seconds that a slow processor takes for all of it: where those of all works are
    few, none is measured.
    """

    name: str
    measure: Callable[[float], WorkCost]
    memory_bytes: int = 0
    least: Callable[[], float] = lambda: 0.0
    slow: float = math.inf


def sampled(once: Callable[[int], float], pieces: str, disk_bytes: int = 0) -> Callable[[float], WorkCost]:
    """A measurement by samples of the work, as many as there is time for, and at least one.

    `once(number)` does a sample and returns the seconds of the whole work as far as the samples so far tell; number 0
    comes before all others, warms up, and tells nothing. `pieces` says what is sampled: "of 148 batches", where the
    number of those that counted stands before it.
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
                return WorkCost(estimate, disk_bytes, measured_on=f"{number} {pieces}")

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


def is_short(operations: float, calls: float) -> bool:
    """Whether even a slow processor does so many operations, in so many passes of a model, in a short time.

    >>> is_short(1e9, 100), is_short(1e9, 10_000), is_short(1e12, 1)
    (True, False, False)
    """
    return slow_seconds(operations, calls) < SHORT


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
