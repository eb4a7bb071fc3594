"""Two models on the same documents, metric by metric: the difference, its interval, p and verdict.

A score is the ratio of sums over documents that reproduces the reported score (a mean, a log-perplexity, bits per byte,
corpus F1), linearized by document if the models' denominators differ. Several tasks of one metric are strata.

    values of 0 and 1    McNemar's exact test, and Bonett and Price's interval
    anything else        `assess_effects` and an expanded percentile bootstrap, over documents
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
"""Numerators and denominators of a score, a document each."""


def mcnemar_p(gained: int, lost: int) -> float:
    """Return the exact two-sided p of McNemar's test (Fagerland and others 2013).

    It is min(1, 2 P(X <= min(gained, lost))) with X ~ Binomial(gained + lost, 1/2).

    >>> mcnemar_p(8, 0), mcnemar_p(3, 3), mcnemar_p(0, 0)
    (0.0078125, 1.0, 1.0)
    """
    return min(1.0, 2.0 * float(special.bdtr(min(gained, lost), gained + lost, 0.5)))


def mcnemar_power(loss: float, rate: float, trials: int, alpha: float) -> float:
    """Return the exact chance that McNemar's test at `alpha` finds a loss.

    Of each of `trials` answers the chance to be lost is `rate + loss`, and to be gained `rate`.

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
    """Return the loss that McNemar's test finds with 80 % power, or the largest possible one if none is.

    Corrected for `comparisons`; the answers that change without it are the share that changed, half in each direction.
    """
    rate = min((gained + lost) / (2 * trials), 0.5)
    most = 1 - 2 * rate

    def missing(loss: float) -> float:
        return mcnemar_power(loss, rate, trials, ALPHA / comparisons) - POWER

    return most if most <= 0 or missing(most) < 0 else float(optimize.brentq(missing, 0.0, most, xtol=1e-6))


def mcnemar_needed(gained: int, lost: int, trials: int, margin: float, comparisons: int) -> int | None:
    """Return how many documents McNemar's test needs to find a loss of `margin` with 80 % power; `None` if none do.

    Answers change as in `mcnemar_detectable`.

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
    """The ratio of sums that a score is made of; `prefix` goes before the metric whose logarithm is compared."""

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
    """The aggregation that gives the stated score of values (documents, numbers); none where no one does."""
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
    """A metric of one task in two evaluations: values of shape (documents, numbers), documents in one order."""

    task: str
    metric: str
    arm: str
    against: str
    aggregation: Aggregation
    more_is_better: bool
    baseline: Numbers = field(repr=False)
    other: Numbers = field(repr=False)
    strata: StratumLabels | None = field(default=None, repr=False)

    @classmethod
    def pooled(cls, pairs: Sequence[PairedMetric]) -> PairedMetric:
        before, after = (np.concatenate([getattr(pair, side) for pair in pairs]) for side in ("baseline", "other"))
        labels = Strata.label_pieces(
            {(pair.task, str(at), WHOLE): 1 for pair in pairs for at in range(len(pair.other))}
        )
        return replace(pairs[0], task=vocab.ALL, baseline=before, other=after, strata=labels)

    def changes(self) -> Ratio:
        (before, below), (after, beside) = map(self.aggregation.ratio, (self.baseline, self.other))
        if np.array_equal(below, beside):
            return after - before, below
        return _linearize(after, beside) - _linearize(before, below), np.ones(len(before))

    def test(self, comparisons: int) -> tuple[SampleEstimate[float], float]:
        """The difference with its 95 % interval, and its p as one of so many; NaN where documents are too few."""
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
        """The difference that the test finds with 80 % power as one of so many; NaN where documents are too few."""
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
        return statistics.mean_interval(_linearize(*self.aggregation.ratio(values)), fewest=MIN_UNITS)

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
        return shown if p_adjusted < ALPHA else vocab.UNRESOLVED

    def row(self, measure: str, value: float, low: float | None, high: float | None, **columns: Any) -> Score:
        """A row about this metric; what is NaN was not measured."""
        columns = {"task": self.task, "arm": self.arm, "against": self.against, "low": low, "high": high, **columns}
        known = {name: each for name, each in columns.items() if each == each}
        return Score(measure, self.aggregation.prefix + self.metric, value, documents=len(self.other), **known)


def paired_rows(pairs: Sequence[PairedMetric], margin: float, tolerated: float | None = None) -> Iterator[Score]:
    """Return rows of every pair, and of `all` for a metric of several tasks, all corrected together (Holm).

    `evaluated` is a score, `needed` the documents for a power of 80 % at the margin where answers are right or wrong,
    `paired` a difference with its `mde` (80 % power): `alike` if its simultaneous interval lies
    inside the margin, `better` or `worse` if the corrected p is below 0.05, else `inconclusive`. `tolerance`, with
    simultaneous one-sided bounds on the loss, is `exceeded` if it is worse and significantly above what is `tolerated`,
    `kept` if `high` is below, else `inconclusive`.
    """
    groups: dict[tuple[object, ...], list[PairedMetric]] = {}
    for pair in pairs:
        groups.setdefault((pair.arm, pair.metric, pair.aggregation, pair.more_is_better), []).append(pair)
    every = [*pairs, *(PairedMetric.pooled(own) for own in groups.values() if len(own) > 1)]
    tests = [pair.test(len(every)) for pair in every]
    differences, p = [each for each, _ in tests], np.array([each for _, each in tests])
    count, adjusted = max(1, int((p == p).sum())), statistics.holm(p)
    losses = [pair.loss(each, 1 - 2 * ALPHA / count) for pair, each in zip(every, differences, strict=True)]
    limit = tolerated or 0.0
    above = statistics.holm([replace(loss, value=limit - loss.value).p_below() for loss in losses])
    for at, (pair, own, loss) in enumerate(zip(every, differences, losses, strict=True)):
        columns = {"p": float(p[at]), "p_adjusted": float(adjusted[at]), "mde": pair.detectable(own, count)}
        decision = pair.decide(own, adjusted[at], margin, count)
        yield pair.row(vocab.PAIRED, *own.row(), verdict=decision, **columns)
        if (needed := pair.count_needed(margin, count)) is not None:
            yield pair.row(vocab.NEEDED, float(needed), None, None, margin=margin)
        if tolerated is not None:
            exceeded = loss.value > 0 and adjusted[at] < ALPHA and above[at] < ALPHA
            decision = vocab.EXCEEDED if exceeded else vocab.KEPT if loss.high < limit else vocab.UNRESOLVED
            yield pair.row(vocab.TOLERANCE, *loss.row(), margin=limit, verdict=decision)
    sides = ((pair, arm, own) for pair in pairs for arm, own in ((pair.against, pair.baseline), (pair.arm, pair.other)))
    for pair, arm, values in {(arm, pair.task, pair.metric): (pair, arm, own) for pair, arm, own in sides}.values():
        yield pair.row(vocab.EVALUATED, *pair.score(values), arm=arm, against=None)
