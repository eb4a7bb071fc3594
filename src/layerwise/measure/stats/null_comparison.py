"""One metric of weights by tensor type and position in depth, with its nulls, as rows of one form.

With a layer: `part` is a tensor type, or empty for the mean over types with the nulls of all layers. Without one:
pooled over layers, with interval and nulls. A value is a ratio of sums over positions (pairs or triples of layers),

    ratio = sum_l numerator[l] / sum_l denominator[l]

For `all`, the sums of each tensor type are first divided by its total. Student's interval over positions (times types
for `all`); neighboring positions share a layer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from layerwise.measure.stats.estimate import Bounded, Numbers
from layerwise.measure.stats.statistics import mean_of
from layerwise.results.rows import Score

ALL = "all"

Summands = tuple[Numbers, Numbers]
"""The numerators and denominators of a ratio by position in depth, shape (positions,)."""

Fractions = Mapping[int, tuple[float, float]]
"""A numerator and a denominator for every layer."""

_NULL_POSITIONS = 6


def type_of(name: str) -> str | None:
    return None if name == ALL else name


def pooled(summands: Mapping[str, Summands]) -> dict[str, Bounded]:
    """Compute the ratio of every tensor type, and last that of `all`, over positions with a nonzero denominator.

    >>> pooled({"q": (np.array([1.0, 2.0]), np.array([2.0, 4.0]))})["q"]
    (0.5, None, None)
    """
    known = {
        name: (above[below > 0], below[below > 0]) for name, (above, below) in summands.items() if (below > 0).any()
    }
    ratios = {name: mean_of(*own) for name, own in known.items()}
    if known:
        scaled = [(above / below.sum(), below / below.sum()) for above, below in known.values()]
        above, below = (np.concatenate(own) for own in zip(*scaled, strict=True))
        ratios[ALL] = mean_of(above, below)
    return ratios


def pooled_complements(by_type: Mapping[str, Fractions]) -> dict[str, Bounded]:
    """Pool `1 - numerator / denominator` over the layers of each tensor type and of all."""
    columns = {name: np.array(list(own.values())).reshape(-1, 2) for name, own in by_type.items()}
    ratios = pooled({name: (own[:, 0], own[:, 1]) for name, own in columns.items()})
    return {
        name: (1.0 - value, None if high is None else 1.0 - high, None if low is None else 1.0 - low)
        for name, (value, low, high) in ratios.items()
    }


def complement_rows(
    measure: str, metric: str, by_type: Mapping[str, Fractions], nulls: Mapping[str, Mapping[str, Bounded]]
) -> Iterator[Score]:
    """Yield the rows of a metric `1 - numerator / denominator`; `nulls` are the pooled values of each null by type."""
    for layer in dict.fromkeys(layer for fractions in by_type.values() for layer in fractions):
        values = {
            name: 1.0 - fractions[layer][0] / fractions[layer][1]
            for name, fractions in by_type.items()
            if layer in fractions and fractions[layer][1] > 0
        }
        for name, value in values.items():
            yield Score(measure, metric, value, part=name, layer=layer)
        if values:
            yield Score(measure, metric, sum(values.values()) / len(values), layer=layer)
            for null, pooled_null in nulls.items():
                if ALL in pooled_null:
                    yield Score(measure, metric, *pooled_null[ALL], against=null, layer=layer)
    for against, by_name in [(None, pooled_complements(by_type)), *nulls.items()]:
        for name, bounded in by_name.items():
            yield Score(measure, metric, *bounded, part=type_of(name), against=against)


def evenly_spaced(fractions: Sequence[int], most: int = _NULL_POSITIONS) -> list[int]:
    """At most `most` of `fractions`, spread evenly with the first and the last: where a costly null is taken.

    >>> evenly_spaced(range(1, 29))
    [1, 6, 12, 17, 23, 28]
    """
    count = min(most, len(fractions))
    return [fractions[round(step * (len(fractions) - 1) / max(1, count - 1))] for step in range(count)]
