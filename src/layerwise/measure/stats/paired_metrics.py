"""Compare two models on the same documents: difference, interval, p-value and verdict for each metric.

A score (mean, log-perplexity, bits per byte, corpus F1) is a ratio of sums over documents. If the denominators of the
two models differ, the ratios are linearized. Scores that are 0 or 1 on every document are compared with McNemar's exact
test and Bonett and Price's interval, all others with `assess_effects` and an expanded percentile bootstrap.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from scipy import optimize, special

import layerwise.results.vocabulary as vocab
from layerwise.measure.stats import statistics
from layerwise.measure.stats.estimate import POWER, Numbers, SampleEstimate
from layerwise.measure.stats.grid import MIN_UNITS, WHOLE, Strata
from layerwise.measure.stats.statistics import ALPHA, StratumLabels
from layerwise.results.rows import Score

RESAMPLES = 10_000

Ratio = tuple[Numbers, Numbers]
"""Numerators and denominators of a score, one of each per document."""


def mcnemar_p(gained: int, lost: int) -> float:
    """Return the exact two-sided p-value of McNemar's test (Fagerland et al. 2013).

        p = min(1, 2 P(X <= min(gained, lost)))        X ~ Binomial(gained + lost, 1/2)

    >>> mcnemar_p(8, 0), mcnemar_p(3, 3), mcnemar_p(0, 0)
    (0.0078125, 1.0, 1.0)
    """
    return min(1.0, 2.0 * float(special.bdtr(min(gained, lost), gained + lost, 0.5)))


def mcnemar_power(loss: float, rate: float, trials: int, alpha: float) -> float:
    """Return the power of McNemar's exact test if a fraction `rate + loss` of answers turns wrong and `rate` right.

    >>> round(mcnemar_power(0.1, 0.0, 100, 0.05), 3)
    0.942
    """
    changed = 2 * rate + loss
    spread = 10 * math.sqrt(trials * changed * (1 - changed)) + 10
    counts = np.arange(max(0, int(trials * changed - spread)), min(trials, int(trials * changed + spread)) + 1)
    # The test rejects up to this number of gains: the greatest k with 2 P(X <= k) < alpha.
    most = np.floor(special.bdtrik(alpha / 2, counts, 0.5))
    most += np.where(2 * special.bdtr(most + 1, counts, 0.5) < alpha, 1, 0)
    most -= np.where((most >= 0) & (2 * special.bdtr(np.maximum(most, 0), counts, 0.5) >= alpha), 1, 0)
    power = np.where(most >= 0, special.bdtr(np.maximum(most, 0), counts, rate / changed if changed else 0.5), 0.0)
    log_chance = special.xlogy(counts, changed) + special.xlog1py(trials - counts, -changed)
    log_chance += special.gammaln(trials + 1) - special.gammaln(counts + 1) - special.gammaln(trials - counts + 1)
    return float(np.exp(log_chance) @ power)


def mcnemar_detectable(gained: int, lost: int, trials: int, comparisons: int) -> float:
    """Return the smallest drop in accuracy that McNemar's test detects with 80 % power at level 5 % / `comparisons`.

    If no drop is detected with this power, return the largest possible one. In addition to the drop, `gained` + `lost`
    answers are assumed to change, half of them from wrong to right.
    """
    rate = min((gained + lost) / (2 * trials), 0.5)
    most = 1 - 2 * rate

    def missing(loss: float) -> float:
        return mcnemar_power(loss, rate, trials, ALPHA / comparisons) - POWER

    return most if most <= 0 or missing(most) < 0 else float(optimize.brentq(missing, 0.0, most, xtol=1e-6))


def mcnemar_needed(gained: int, lost: int, trials: int, margin: float, comparisons: int) -> int | None:
    """Return the number of documents needed to detect a drop of `margin` with 80 % power, or None if impossible.

    >>> mcnemar_needed(0, 0, 50, 0.1, 1)
    78
    """
    rate = (gained + lost) / (2 * trials)
    if not 0 < margin < 1 - 2 * rate:
        return None
    fewest, enough = 1, 2
    while mcnemar_power(margin, rate, enough, ALPHA / comparisons) < POWER:
        fewest, enough = enough, 2 * enough
    while enough - fewest > 1:
        middle = (fewest + enough) // 2
        is_enough = mcnemar_power(margin, rate, middle, ALPHA / comparisons) >= POWER
        fewest, enough = (fewest, middle) if is_enough else (middle, enough)
    return enough


@dataclass(frozen=True, slots=True)
class Aggregation:
    """A way to compute a score as a ratio of sums over documents, each of which has `numbers` values.

    If the `prefix` is "log ", the ratio is the logarithm of the score.
    """

    numbers: int
    ratio: Callable[[Numbers], Ratio]
    prefix: str = ""


AGGREGATIONS = (
    Aggregation(1, lambda values: (values[:, 0], np.ones(len(values)))),
    Aggregation(1, lambda values: (-values[:, 0], np.ones(len(values))), "log "),
    Aggregation(2, lambda values: (-values[:, 0], values[:, 1]), "log "),
    Aggregation(2, lambda values: (-values[:, 0] / math.log(2), values[:, 1])),
    Aggregation(2, lambda values: (2 * values[:, 0] * values[:, 1], values.sum(axis=1))),
)


def find_aggregation(values: Sequence[Sequence[float] | None], score: float) -> Aggregation | None:
    """Find the aggregation that computes `score` from `values` (documents, numbers), or return None."""
    widths = {0 if value is None else len(value) for value in values}
    for each in AGGREGATIONS:
        if widths == {each.numbers}:
            above, below = (part.sum() for part in each.ratio(np.array(values, dtype=np.float64)))
            own = above / below if below > 0 else math.nan
            if math.isclose(math.exp(min(own, 700.0)) if each.prefix else own, score, rel_tol=1e-6, abs_tol=1e-12):
                return each
    return None


def _linearize(above: Numbers, below: Numbers) -> Numbers:
    score = above.sum() / below.sum()
    return np.asarray(score + (above - score * below) / below.mean())


@dataclass(frozen=True, slots=True)
class PairedMetric:
    """Values of one metric and task for two models on the same documents, shape (documents, numbers)."""

    task: str
    metric: str
    variant: str
    against: str
    aggregation: Aggregation
    more_is_better: bool
    baseline: Numbers = field(repr=False)
    other: Numbers = field(repr=False)
    strata: StratumLabels | None = field(default=None, repr=False)

    @classmethod
    def pool(cls, pairs: Sequence[PairedMetric]) -> PairedMetric:
        before, after = (np.concatenate([getattr(pair, side) for pair in pairs]) for side in ("baseline", "other"))
        labels = Strata.label_pieces(
            {(pair.task, str(at), WHOLE): 1 for pair in pairs for at in range(len(pair.other))}
        )
        return replace(pairs[0], task=vocab.ALL, baseline=before, other=after, strata=labels)

    def changes(self) -> Ratio:
        (before, below), (after, other_below) = map(self.aggregation.ratio, (self.baseline, self.other))
        if np.array_equal(below, other_below):
            return after - before, below
        return _linearize(after, other_below) - _linearize(before, below), np.ones(len(before))

    def test(self, comparisons: int) -> tuple[SampleEstimate[float], float]:
        """Return the difference with its 95 % interval and p-value, which are NaN for fewer than 8 documents."""
        above, below = self.changes()
        if below.size < MIN_UNITS:
            return SampleEstimate(float(above.sum() / below.sum()), *[math.nan] * 4), math.nan
        if self.is_right_or_wrong:
            gained, lost = self._counts()
            return statistics.paired_proportions([gained], [lost], below.size).each()[0], mcnemar_p(gained, lost)
        seed = (0, zlib.crc32(f"{self.task} {self.metric}".encode()))
        drawn = statistics.paired_bootstrap(above, below, seed=seed, resamples=RESAMPLES, strata=self.strata)
        test = statistics.assess_effects(above, below, seed=seed, comparisons=comparisons, strata=self.strata)
        return drawn.each()[0], float(test.p[0])

    @property
    def is_right_or_wrong(self) -> bool:
        return self.aggregation is AGGREGATIONS[0] and bool(np.isin([self.baseline, self.other], (0.0, 1.0)).all())

    def detectable(self, difference: SampleEstimate[float], comparisons: int) -> float:
        """Return the difference that the test detects with 80 % power, or NaN for fewer than 8 documents."""
        if math.isnan(difference.error):
            return math.nan
        if self.is_right_or_wrong:
            return mcnemar_detectable(*self._counts(), len(self.other), comparisons)
        own = statistics.skewed_interval(*self.changes(), strata=self.strata)
        return float(statistics.minimum_detectable_effect(own.error, own.freedom + 1, comparisons=comparisons)[0])

    def count_needed(self, margin: float, comparisons: int) -> int | None:
        if not self.is_right_or_wrong or len(self.other) < MIN_UNITS:
            return None
        return mcnemar_needed(*self._counts(), len(self.other), margin, comparisons)

    def score(self, values: Numbers) -> tuple[float, float | None, float | None]:
        if self.is_right_or_wrong and len(values) >= MIN_UNITS:
            return statistics.wilson(values.sum(axis=0), len(values)).row()
        return statistics.mean_interval(_linearize(*self.aggregation.ratio(values)), min_units=MIN_UNITS)

    def _counts(self) -> tuple[int, int]:
        changes = self.other - self.baseline
        return int((changes > 0).sum()), int((changes < 0).sum())

    def loss(self, difference: SampleEstimate[float], level: float) -> SampleEstimate[float]:
        sign = -1.0 if self.more_is_better and not self.aggregation.prefix else 1.0
        return SampleEstimate.student(sign * difference.value, difference.error, difference.freedom, level)

    def decide(self, difference: SampleEstimate[float], p_adjusted: float, margin: float, comparisons: int) -> str:
        together = self.loss(difference, 1 - ALPHA / comparisons)
        if -margin < together.low and together.high < margin:
            return vocab.ALIKE
        shown = vocab.WORSE if together.value > 0 else vocab.BETTER
        return shown if p_adjusted < ALPHA else vocab.INCONCLUSIVE

    def row(self, measure: str, value: float, low: float | None, high: float | None, **columns: Any) -> Score:
        """Return a row of this metric, omitting columns that are NaN."""
        columns = {
            "task": self.task,
            "variant": self.variant,
            "against": self.against,
            "low": low,
            "high": high,
            **columns,
        }
        columns = {name: each for name, each in columns.items() if each == each}
        return Score(measure, self.aggregation.prefix + self.metric, value, documents=len(self.other), **columns)


def paired_rows(pairs: Sequence[PairedMetric], margin: float, tolerated: float | None = None) -> Iterator[Score]:
    """Yield the rows of every pair, and pooled rows (task `all`) for each metric with several tasks.

    p-values are Holm-adjusted over all of these comparisons. The rows have these measures:
        paired: The difference and its minimum detectable effect. The verdict is `alike` if the simultaneous interval is
            inside the margin, `better` or `worse` if the adjusted p-value is below 0.05, otherwise inconclusive.
        needed: For right or wrong answers, the number of documents needed to detect a drop of `margin` (80 % power).
        tolerance: How much worse the score is, with simultaneous one-sided bounds. The verdict is `exceeded` if it is
            significantly worse by more than `tolerated`, `kept` if `high` is below `tolerated`, otherwise inconclusive.
        evaluated: The score of each model.
    """
    groups: dict[tuple[object, ...], list[PairedMetric]] = {}
    for pair in pairs:
        groups.setdefault((pair.variant, pair.metric, pair.aggregation, pair.more_is_better), []).append(pair)
    every = [*pairs, *(PairedMetric.pool(group) for group in groups.values() if len(group) > 1)]
    tests = [pair.test(len(every)) for pair in every]
    differences, p = [each for each, _ in tests], np.array([each for _, each in tests])
    count, adjusted = max(1, int((p == p).sum())), statistics.holm(p)
    losses = [pair.loss(each, 1 - 2 * ALPHA / count) for pair, each in zip(every, differences, strict=True)]
    limit = tolerated or 0.0
    above = statistics.holm([replace(loss, value=limit - loss.value).p_below() for loss in losses])
    for at, (pair, difference, loss) in enumerate(zip(every, differences, losses, strict=True)):
        columns = {"p": float(p[at]), "p_adjusted": float(adjusted[at]), "mde": pair.detectable(difference, count)}
        decision = pair.decide(difference, adjusted[at], margin, count)
        yield pair.row(vocab.PAIRED, *difference.row(), verdict=decision, **columns)
        if (needed := pair.count_needed(margin, count)) is not None:
            yield pair.row(vocab.NEEDED, float(needed), None, None, margin=margin)
        if tolerated is not None:
            exceeded = loss.value > 0 and adjusted[at] < ALPHA and above[at] < ALPHA
            decision = vocab.EXCEEDED if exceeded else vocab.KEPT if loss.high < limit else vocab.INCONCLUSIVE
            yield pair.row(vocab.TOLERANCE, *loss.row(), margin=limit, verdict=decision)
    sides = (
        (pair, variant, own)
        for pair in pairs
        for variant, own in ((pair.against, pair.baseline), (pair.variant, pair.other))
    )
    for pair, variant, values in {
        (variant, pair.task, pair.metric): (pair, variant, own) for pair, variant, own in sides
    }.values():
        yield pair.row(vocab.EVALUATED, *pair.score(values), variant=variant, against=None)
