"""What may be concluded of a router: is it above the best fixed plan, below it, alike, or is that not resolvable?

    above        its score is above the mixture of fixed plans at the same mean layers, and above its own plans dealt
                 out at random, both at `alpha` (an intersection-union test, which needs no correction; Berger 1982).
                 The first alone may be luck in the choice of the fixed plans, the second alone a costlier way to be
                 no better than they are
    equivalent   the interval of the gain over fixed plans lies within the margin on both sides
    below        it is below the fixed plans at `alpha`
    unresolved   anything else

Every question counts once, with the mean of its gains over the seeds. A conclusion is of the fitting, not of one fit:
other questions would have chosen other fixed plans and another router, and that moves the gain as much as the questions
of the test do. Intervals and p-values are Student's over questions, with the standard error times

    sqrt(1 + K n_test / n_fit)        K folds, each of n_test questions, fitted to n_fit others

(Nadeau and Bengio 2003, "Inference for the generalization error"): 1.5 of five folds. In simulated studies the gain
varied 1.0 to 1.7 times as much as its plain standard error over questions says. How often a router that reads nothing
is called `above`, and how often a gain beyond the margin is called `equivalent` or `below`, was counted on planted
truths (tests/search/routing).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from layerwise.errors import OptionError
from layerwise.measure.stats.estimate import Estimate
from layerwise.measure.stats.statistics import Numbers, holm, student_interval
from layerwise.results.rows import Score

RoutingDecision = Literal["above", "equivalent", "below", "unresolved"]


@dataclass(frozen=True, slots=True)
class RoutingCriterion:
    """The margin within which two scores are alike, in units of the score, and the error rate of a decision."""

    margin: float = 0.02
    alpha: float = 0.05

    def __post_init__(self) -> None:
        if not self.margin > 0:
            raise OptionError(f"a margin of {self.margin} makes nothing alike; give one above 0, such as 0.02")

    def concludes(self, fixed: Score, permuted: Score) -> RoutingDecision:
        """The decision of two gains: over fixed plans, and over the router's own plans dealt out at random."""
        if all(self._significant(score) and score.value > 0 for score in (fixed, permuted)):
            return "above"
        low, high = fixed.low, fixed.high
        if low is not None and high is not None and -self.margin < low and high < self.margin:
            return "equivalent"
        return "below" if self._significant(fixed) and fixed.value < 0 else "unresolved"

    def _significant(self, score: Score) -> bool:
        p = score.p if score.p_adjusted is None else score.p_adjusted
        return p is not None and p < self.alpha


def gain_rows(
    measure: str, metric: str, gains: Mapping[str, Numbers], inflation: float, **columns: Any
) -> list[Score]:  # fmt: skip
    """A row for each arm: the router's mean gain over it with interval, p and mde, its standard error times
    `inflation`. `columns` say of which questions it is.
    """
    values = np.stack(list(gains.values()))
    questions = values.shape[1]
    plain = student_interval(values, np.ones(questions))
    own = Estimate.student(plain.value, inflation * plain.error, plain.freedom)
    p, mde = own.p(), own.detectable()
    return [
        Score(
            measure, metric, each.value, each.low, each.high, float(p[row]), mde=float(mde[row]), documents=questions,
            arm=arm, **columns,
        )
        for row, (arm, each) in enumerate(zip(gains, own.each(), strict=True))
    ]  # fmt: skip


def adjusted(rows: Sequence[Score]) -> list[Score]:
    """The rows with p-values corrected over them (Holm): the same gain on several task sets."""
    values = holm([1.0 if row.p is None else row.p for row in rows])
    return [replace(row, p_adjusted=float(p)) for row, p in zip(rows, values, strict=True)]
