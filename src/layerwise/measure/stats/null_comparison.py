"""A level: one metric of weights by tensor type and position in depth, with its nulls, written out as rows.

Whatever is compared (entries, norms, subspaces), the rows have one form, so that they can be read and drawn alike:

    subject a layer or pair, task a tensor type   the value there
    subject a layer or pair, task `all`           the mean over tensor types, and the nulls of `all` layers again
    subject `all`, task a tensor type             pooled over layers, with its interval and its nulls
    subject `all`, task `all`                     the same over tensor types, each of which weighs the same
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from layerwise.measure.stats.ratio_of_sums import ALL, Parts, Pooled, pooled
from layerwise.results.rows import Score

Fractions = Mapping[str, tuple[float, float]]
"""A numerator and a denominator for every subject, `"12"` or `"3,4"`."""


_NULL_POSITIONS = 6
"""Positions in depth at which a costly null is taken."""


@dataclass(frozen=True, slots=True)
class NullComparison:
    """A metric whose value is `shift + scale * numerator / denominator`.

    `by_type` has the summands of every tensor type at every subject, `nulls` the pooled values under each null by task.
    """

    metric: str
    by_type: Mapping[str, Fractions]
    nulls: Mapping[str, Mapping[str, Pooled]] = field(default_factory=dict)
    scale: float = 1.0
    shift: float = 0.0

    def pooled(self) -> dict[str, Pooled]:
        """The value over all subjects for every tensor type, and for `all`."""
        parts = {
            name: Parts(
                np.array([top for top, _ in fractions.values()]), np.array([low for _, low in fractions.values()])
            )
            for name, fractions in self.by_type.items()
        }
        return {task: each.mapped(self.scale, self.shift) for task, each in pooled(parts).items()}

    def rows(self, measure: str) -> Iterator[Score]:
        """Every row of this level, as the module describes."""
        subjects = {subject: None for fractions in self.by_type.values() for subject in fractions}
        for subject in subjects:
            yield from self._of_subject(measure, subject)
        for task, each in self.pooled().items():
            yield Score(measure, ALL, task, self.metric, each.value, each.low, each.high)
        for null, by_task in self.nulls.items():
            for task, each in by_task.items():
                yield Score(measure, ALL, task, f"{self.metric}@{null}", each.value, each.low, each.high)

    def _of_subject(self, measure: str, subject: str) -> Iterator[Score]:
        values = {}
        for name, fractions in self.by_type.items():
            above, below = fractions.get(subject, (0.0, 0.0))
            if below > 0:
                values[name] = self.shift + self.scale * above / below
        for name, value in values.items():
            yield Score(measure, subject, name, self.metric, value)
        if values:
            yield Score(measure, subject, ALL, self.metric, sum(values.values()) / len(values))
            for null, by_task in self.nulls.items():
                if ALL in by_task:
                    each = by_task[ALL]
                    yield Score(measure, subject, ALL, f"{self.metric}@{null}", each.value, each.low, each.high)


def evenly_spaced(fractions: Sequence[int], most: int = _NULL_POSITIONS) -> list[int]:
    """At most `most` of `fractions`, spread evenly with the first and the last: where a costly null is taken.

    >>> evenly_spaced(range(1, 29))
    [1, 6, 12, 17, 23, 28]
    """
    count = min(most, len(fractions))
    return [fractions[round(step * (len(fractions) - 1) / max(1, count - 1))] for step in range(count)]
