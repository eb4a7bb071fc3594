"""One metric of weights by tensor type and position in depth, with its nulls, as rows of one form.

With a layer: `part` is a tensor type, or empty for the mean over types with the nulls of all layers. Without one:
pooled over layers, with interval and nulls. A value is a ratio of sums over positions (pairs or triples of layers),

    ratio = sum_l numerator[l] / sum_l denominator[l]

For `all`, the sums of each tensor type are first divided by its total. Student's interval over positions (times types
for `all`); neighboring positions share a layer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from layerwise.measure.stats.statistics import Numbers, mean_of
from layerwise.results.rows import Score

ALL = "all"


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

    def complement(self) -> Pooled:
        low, high = (None if bound is None else 1.0 - bound for bound in (self.high, self.low))
        return Pooled(1.0 - self.value, low, high)


def pooled(parts: Mapping[str, Parts]) -> dict[str, Pooled]:
    """Compute the ratio of every tensor type, and last that of `all`, over positions with a nonzero denominator.

    >>> pooled({"q": Parts(np.array([1.0, 2.0]), np.array([2.0, 4.0]))})["q"]
    Pooled(value=0.5, low=None, high=None)
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
    return Pooled(*mean_of(part.numerators, part.denominators))


Fractions = Mapping[int, tuple[float, float]]
"""A numerator and a denominator for every layer."""

_NULL_POSITIONS = 6


@dataclass(frozen=True, slots=True)
class NullComparison:
    """A metric `1 - numerator / denominator`.

    `by_type` has the summands of every tensor type by layer, `nulls` the pooled values of each null by type.
    """

    metric: str
    by_type: Mapping[str, Fractions]
    nulls: Mapping[str, Mapping[str, Pooled]] = field(default_factory=dict)

    def pooled(self) -> dict[str, Pooled]:
        parts = {
            name: Parts(
                np.array([top for top, _ in fractions.values()]), np.array([low for _, low in fractions.values()])
            )
            for name, fractions in self.by_type.items()
        }
        return {name: each.complement() for name, each in pooled(parts).items()}

    def rows(self, measure: str) -> Iterator[Score]:
        for layer in dict.fromkeys(layer for fractions in self.by_type.values() for layer in fractions):
            yield from self._rows_of_layer(measure, layer)
        for name, each in self.pooled().items():
            yield Score(measure, self.metric, each.value, each.low, each.high, part=type_of(name))
        for null, by_type in self.nulls.items():
            for name, each in by_type.items():
                yield Score(measure, self.metric, each.value, each.low, each.high, part=type_of(name), against=null)

    def _rows_of_layer(self, measure: str, layer: int) -> Iterator[Score]:
        values = {}
        for name, fractions in self.by_type.items():
            above, below = fractions.get(layer, (0.0, 0.0))
            if below > 0:
                values[name] = 1.0 - above / below
        for name, value in values.items():
            yield Score(measure, self.metric, value, part=name, layer=layer)
        if values:
            yield Score(measure, self.metric, sum(values.values()) / len(values), layer=layer)
            for null, by_type in self.nulls.items():
                if ALL in by_type:
                    each = by_type[ALL]
                    yield Score(measure, self.metric, each.value, each.low, each.high, against=null, layer=layer)


def evenly_spaced(fractions: Sequence[int], most: int = _NULL_POSITIONS) -> list[int]:
    """At most `most` of `fractions`, spread evenly with the first and the last: where a costly null is taken.

    >>> evenly_spaced(range(1, 29))
    [1, 6, 12, 17, 23, 28]
    """
    count = min(most, len(fractions))
    return [fractions[round(step * (len(fractions) - 1) / max(1, count - 1))] for step in range(count)]
