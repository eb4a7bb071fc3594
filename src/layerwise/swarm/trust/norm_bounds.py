"""Bounds on what layers do to the norm of a state, learned from the hops of all nodes that run them.

Two numbers of a hop are bounded, in their logarithms: the norm of the update beside that of the state that entered,
|out - in| / |in|, and |out| / |in|. The bounds lie three times the distance of the 5 % and 95 % quantiles beyond them,
so that an honest hop is outside about never, and a minority of wrong hops does not move them. Zeros and noise are
outside; another layer's output may well be inside, and is for comparisons to find. A hop outside its bounds proves
nothing: texts of a new kind may do that. It is a reason to compare it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass, field
from math import inf, isfinite, log

import numpy as np

REMEMBERED = 400
"""Hops of one kind that bounds are learned from: the last ones."""

ENOUGH = 30
"""Hops of one kind before which there are no bounds."""

EDGES = (0.05, 0.95)
MARGIN = 3.0
LEAST_SPREAD = log(1.1)
"""The least distance of the two quantiles that is assumed: layers whose updates hardly vary have bounds too."""

TINY = 1e-30


@dataclass(frozen=True, slots=True)
class Norms:
    """The norm of the state that enters a hop, of the one that leaves it, and of their difference."""

    entering: float
    leaving: float
    update: float

    @property
    def logarithms(self) -> tuple[float, float]:
        """Those of |out - in| / |in| and of |out| / |in|."""
        below = max(self.entering, TINY)
        return log(max(self.update / below, TINY)), log(max(self.leaving / below, TINY))

    @property
    def are_finite(self) -> bool:
        """Whether all three are numbers."""
        return isfinite(self.entering) and isfinite(self.leaving) and isfinite(self.update)


@dataclass(slots=True)
class _Kind:
    """The last hops of one kind, and the bounds (low, high) of the two numbers that follow."""

    hops: deque[tuple[float, float]] = field(default_factory=lambda: deque(maxlen=REMEMBERED))
    bounds: tuple[tuple[float, float], ...] = ()
    until: int = ENOUGH

    def add(self, numbers: tuple[float, float]) -> None:
        """Remember a hop; the bounds are computed anew whenever a tenth more hops were seen."""
        self.hops.append(numbers)
        self.until -= 1
        if self.until <= 0:
            low, high = np.quantile(np.array(self.hops), EDGES, axis=0)
            margin = MARGIN * np.maximum(high - low, LEAST_SPREAD)
            self.bounds = tuple(zip((low - margin).tolist(), (high + margin).tolist(), strict=True))
            self.until = max(1, len(self.hops) // 10)


@dataclass(slots=True)
class NormBounds:
    """The bounds of every kind of hop. A kind is what hops are compared by: the layers, and whether a prompt is read.

    A prompt is a kind of its own, since the first token's state may be thousands of times as long as the others.
    """

    _kinds: dict[Hashable, _Kind] = field(default_factory=dict)

    def holds(self, kind: Hashable, norms: Norms) -> bool | None:
        """Whether the norms of a hop lie within the bounds of its kind; `None` before these are known.

        A state that is zero, or no number, is outside any bounds.
        """
        if not norms.are_finite or norms.leaving == 0:
            return False
        known = self._kinds.get(kind)
        if known is None or not known.bounds:
            return None
        return all(low <= each <= high for each, (low, high) in zip(norms.logarithms, known.bounds, strict=True))

    def learn(self, kind: Hashable, norms: Norms) -> None:
        """Add a hop to those that bounds are learned from; its node should not be under suspicion."""
        if norms.are_finite:
            self._kinds.setdefault(kind, _Kind()).add(norms.logarithms)

    def bounds(self, kind: Hashable) -> tuple[tuple[float, float], ...]:
        """The (low, high) of the two logarithms; all numbers before they are known."""
        known = self._kinds.get(kind)
        return known.bounds if known is not None and known.bounds else ((-inf, inf), (-inf, inf))
