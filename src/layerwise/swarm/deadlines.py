"""Deadlines of a node's hops, from the durations of its recent hops.

Hops are grouped by work (visits x tokens x sequences) in powers of four. Times are assumed to grow with the work and at
most in proportion to it, so a class with few hops is bounded by its neighbors. A node that becomes slow gets more time,
up to a fixed bound.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from dataclasses import dataclass, field
from math import ceil

WINDOW = 200

ENOUGH = 20

UNKNOWN = 4.0
"""How many times longer than the others a node is waited for that has answered few hops."""

FACTOR = 2.0
"""Times the 99th percentile that a node is waited for."""

MEDIANS = 10.0
"""Times the median of all nodes that a node is waited for at most, before others are asked."""

LONGEST = 3.0
"""Times the deadline of a first hop that a node is waited for at most: 30 s, where that is 10 s."""

FIRST_PER_WORK = 0.02
"""Seconds that a first hop is given for each unit of its work, beside what every first hop is given."""


def _last() -> deque[float]:
    return deque(maxlen=WINDOW)


def _quantile(seconds: Collection[float], share: float) -> float:
    return sorted(seconds)[ceil(share * len(seconds)) - 1]


@dataclass(slots=True)
class Latencies:
    """Durations and deadlines of one node's hops: initially `first` seconds and some for the work, at least `floor`."""

    first: float = 10.0
    floor: float = 0.05
    _all: deque[float] = field(default_factory=_last)
    _classes: dict[int, deque[float]] = field(default_factory=dict)

    def record(self, seconds: float, work: int = 1) -> None:
        self._all.append(seconds)
        self._classes.setdefault(_class(work), _last()).append(seconds)

    def quantile(self, share: float) -> float | None:
        """The quantile of the last hops of whatever work; `None` before there are any."""
        return _quantile(self._all, share) if self._all else None

    def deadline(self, work: int = 1, others: Latencies | None = None) -> float:
        """Return the seconds without an answer after which a node with so much `work` due is late.

        Little-known nodes get `UNKNOWN` times the `others`, at most `MEDIANS` medians and `LONGEST` first hops.
        """
        known, usual = self._bound(0.99, work), None if others is None else others._bound(0.99, work)
        if known is not None:
            wanted = FACTOR * known
        else:
            first = self.first + FIRST_PER_WORK * work
            wanted = first if usual is None else min(first, UNKNOWN * FACTOR * usual)
        median = None if others is None else others._bound(0.5, work)
        most = LONGEST * self.first
        return max(self.floor, min(wanted, most if median is None else min(most, MEDIANS * median)))

    def patience(self, work: int = 1) -> float:
        return LONGEST * max(self.floor, self.first) + FIRST_PER_WORK * work

    def _bound(self, share: float, work: int) -> float | None:
        own = self._classes.get(_class(work), ())
        if len(own) >= ENOUGH:
            return _quantile(own, share)
        known = [(number, each) for number, each in self._classes.items() if len(each) >= ENOUGH]
        bounds = [
            _quantile(each, share) * (1.0 if number > _class(work) else work / int(4**number)) for number, each in known
        ]
        return min(bounds, default=None)


def _class(work: int) -> int:
    """The whole part of the logarithm of the work to base 4.

    >>> [_class(work) for work in (1, 3, 4, 15, 16)]
    [0, 0, 1, 1, 2]
    """
    return (max(work, 1).bit_length() - 1) // 2
