"""Ratios of sums over layers, for each tensor type and for all types together, with intervals over layers.

What a weight measure says of a tensor type is a ratio of two sums over positions in depth (layers, pairs, triples),

    ratio = sum_l numerator[l] / sum_l denominator[l]

such as a residual sum of squares by a total one. For `all`, each tensor type's sums are divided by its own total first,
so that every type weighs the same however many entries it has. The interval is Student's over positions (types times
positions for `all`). Neighbouring positions share a layer, so they are not quite independent; the nulls that are
printed beside every metric are computed in the same way and do not rest on that.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from layerwise.measure.stats.statistics import Numbers, student_interval

ALL = "all"
"""What stands for all tensor types together."""


def type_of(name: str) -> str | None:
    """The column `part` of a tensor type; none for all of them."""
    return None if name == ALL else name


@dataclass(frozen=True, slots=True)
class Parts:
    """The summands of a ratio, one of each a position in depth: two arrays of shape (positions,)."""

    numerators: Numbers
    denominators: Numbers


@dataclass(frozen=True, slots=True)
class Pooled:
    """A ratio and its 95 % interval; no bounds with a single position."""

    value: float
    low: float | None
    high: float | None

    def mapped(self, scale: float, shift: float) -> Pooled:
        """The same of `scale * ratio + shift`, bounds in order."""
        value, *bounds = (None if x is None else scale * x + shift for x in (self.value, self.low, self.high))
        low, high = bounds if scale > 0 else bounds[::-1]
        assert value is not None
        return Pooled(value, low, high)


def pooled(parts: Mapping[str, Parts]) -> dict[str, Pooled]:
    """The ratio of every tensor type that has one, and last that of `all`.

    Positions whose denominator is zero carry no information and are left out, types with no other positions too.

    >>> pooled({"q": Parts(np.array([1.0, 2.0]), np.array([2.0, 4.0]))})["q"]
    Pooled(value=0.5, low=0.5, high=0.5)
    """
    known: dict[str, Parts] = {}
    for name, part in parts.items():
        kept = part.denominators > 0
        if kept.any():
            known[name] = Parts(part.numerators[kept], part.denominators[kept])
    ratios = {name: _ratio(part) for name, part in known.items()}
    if known:
        totals = [part.denominators.sum() for part in known.values()]
        scaled = list(zip(known.values(), totals, strict=True))
        everything = Parts(
            np.concatenate([part.numerators / total for part, total in scaled]),
            np.concatenate([part.denominators / total for part, total in scaled]),
        )
        ratios[ALL] = _ratio(everything)
    return ratios


def _ratio(part: Parts) -> Pooled:
    if part.denominators.size < 2:
        return Pooled(float(part.numerators.sum() / part.denominators.sum()), None, None)
    estimate = student_interval(part.numerators, part.denominators)
    return Pooled(float(estimate.value[0]), float(estimate.low[0]), float(estimate.high[0]))
