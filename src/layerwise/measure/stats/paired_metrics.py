"""Two models on the same documents, metric by metric: the difference, its interval, its p and what it decides.

A score is a ratio of sums over documents, as lm-eval aggregates them: a mean (accuracy, F1 of each answer), of a
perplexity the logarithm (nats a document, a word or a byte), bits per byte, or the F1 of all answers. It is not read
from a name: it is the ratio that gives the score that was stated. The difference is a ratio of sums too; where the
models have denominators of their own (F1), each score is linearised document by document.

    values of 0 and 1    McNemar's exact test, and Bonett and Price's interval
    anything else        sign flips and an expanded percentile bootstrap, over documents

Over several tasks of one metric it is the same, with the tasks as strata; an exact test needs none.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from scipy import special

from layerwise.measure.stats import statistics
from layerwise.measure.stats.effects import FLIPS_PER_PLAN
from layerwise.measure.stats.estimate import Estimate, Numbers
from layerwise.measure.stats.grid import FEWEST_UNITS, WHOLE
from layerwise.measure.stats.statistics import StratumLabels
from layerwise.measure.stats.strata import Strata
from layerwise.results import vocabulary as vocab
from layerwise.results.rows import Score

ALPHA = 0.05
RESAMPLES = 10_000

Ratio = tuple[Numbers, Numbers]
"""Numerators and denominators of a score, a document each."""


def mcnemar(gained: int, lost: int) -> float:
    """The exact two-sided p of McNemar's test on the documents that one model alone has right.

    It is min(1, 2 P(X <= min(gained, lost))), X binomial of gained + lost and 1/2 (Fagerland and others 2013).

    >>> mcnemar(8, 0), mcnemar(3, 3), mcnemar(0, 0)
    (0.0078125, 1.0, 1.0)
    """
    return min(1.0, 2.0 * float(special.bdtr(min(gained, lost), gained + lost, 0.5)))


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


def aggregation_of(values: Sequence[Sequence[float] | None], score: float) -> Aggregation | None:
    """The aggregation that gives the stated score of values (documents, numbers); none where no one does."""
    widths = {0 if value is None else len(value) for value in values}
    for each in AGGREGATIONS:
        if widths == {each.numbers}:
            above, below = (part.sum() for part in each.ratio(np.array(values, dtype=np.float64)))
            own = above / below if below > 0 else math.nan
            if math.isclose(math.exp(min(own, 700.0)) if each.prefix else own, score, rel_tol=1e-6, abs_tol=1e-12):
                return each
    return None


def _linear(above: Numbers, below: Numbers) -> Numbers:
    """A number a document whose mean is the ratio, and whose standard error is that of the ratio, linearised."""
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
        """The metric over several tasks, which are the strata."""
        before, after = (np.concatenate([getattr(pair, side) for pair in pairs]) for side in ("baseline", "other"))
        units = {(pair.task, str(at), WHOLE): 1 for pair in pairs for at in range(len(pair.other))}
        labels = Strata.labels_of(units)
        return replace(pairs[0], task=vocab.ALL, baseline=before, other=after, strata=labels)

    def changes(self) -> Ratio:
        """The difference, other minus baseline, as a ratio of sums."""
        (before, below), (after, beside) = map(self.aggregation.ratio, (self.baseline, self.other))
        if np.array_equal(below, beside):
            return after - before, below
        return _linear(after, beside) - _linear(before, below), np.ones(len(before))

    def row(self, measure: str, value: float, **columns: Any) -> Score:
        """A row about this metric; what is NaN was not measured."""
        columns = {"task": self.task, "arm": self.arm, "against": self.against, **columns}
        known = {name: each for name, each in columns.items() if each == each}
        return Score(measure, self.aggregation.prefix + self.metric, value, **known)


@dataclass(frozen=True, slots=True)
class Difference:
    """The difference of two models with its 95 % interval and its p; both are NaN where documents are too few."""

    pair: PairedMetric
    documents: int
    estimate: Estimate[float]
    p: float

    @classmethod
    def of(cls, pair: PairedMetric, comparisons: int) -> Difference:
        """One of so many `comparisons`."""
        above, below = pair.changes()
        if below.size < FEWEST_UNITS:
            return cls(pair, below.size, Estimate(float(above.sum() / below.sum()), *[math.nan] * 4), math.nan)
        if pair.aggregation is AGGREGATIONS[0] and np.isin([pair.baseline, pair.other], (0.0, 1.0)).all():
            gained, lost = int((above > 0).sum()), int((above < 0).sum())
            (estimate,) = statistics.paired_proportions([gained], [lost], below.size).each()
            return cls(pair, below.size, estimate, mcnemar(gained, lost))
        seed = (0, zlib.crc32(f"{pair.task} {pair.metric}".encode()))
        own: dict[str, Any] = {"seed": seed, "strata": pair.strata}
        (estimate,) = statistics.paired_bootstrap(above, below, resamples=RESAMPLES, **own).each()
        flips = max(RESAMPLES, FLIPS_PER_PLAN * comparisons)
        return cls(pair, below.size, estimate, float(statistics.sign_flips(above, flips=flips, **own).p[0]))

    def loss(self, level: float) -> Estimate[float]:
        """By how much the other model is worse, with Student's interval at `level`."""
        better = self.pair.more_is_better and not self.pair.aggregation.prefix
        value = -self.estimate.value if better else self.estimate.value
        return Estimate.student(value, self.estimate.error, self.estimate.freedom, level)

    def row(self, p: float, margin: float, comparisons: int) -> Score:
        """The row of the difference, with its p after correction."""
        together, own = self.loss(1 - ALPHA / comparisons), self.estimate
        alike = -margin < together.low and together.high < margin
        shown = vocab.WORSE if together.value > 0 else vocab.BETTER
        decision = vocab.ALIKE if alike else shown if p < ALPHA else vocab.UNRESOLVED
        mde = float(own.detectable(comparisons))
        columns = {"low": own.low, "high": own.high, "p": self.p, "p_adjusted": p, "mde": mde, "condition": decision}
        return self.pair.row(vocab.PAIRED, own.value, documents=self.documents, **columns)


def paired_rows(pairs: Sequence[PairedMetric], margin: float, tolerated: float | None = None) -> Iterator[Score]:
    """Rows of every pair, and of the task `all` where several tasks have one metric; all of them corrected together.

    `evaluated` is a score; `paired` a difference, its `mde` found with 80 % power, its `condition` what it decides:

        alike            the interval that holds for all differences together lies inside the margin on both sides
        better, worse    p, corrected (Holm), is below 0.05
        not_resolvable   anything else

    `tolerance`, where a loss is `tolerated`, is the loss; its `high` is the most that all bounds together leave open.
    It is `exceeded` where it is worse, and shown to be above what is tolerated, one-sided and corrected; `kept` where
    `high` is below; else `not_resolvable`.
    """
    groups: dict[tuple[object, ...], list[PairedMetric]] = {}
    for pair in pairs:
        groups.setdefault((pair.arm, pair.metric, pair.aggregation, pair.more_is_better), []).append(pair)
    compared = [*pairs, *(PairedMetric.pooled(own) for own in groups.values() if len(own) > 1)]
    every = [Difference.of(pair, len(compared)) for pair in compared]
    count = max(1, sum(not math.isnan(each.p) for each in every))
    adjusted = statistics.holm([each.p for each in every]).tolist()
    yield from (each.row(p, margin, count) for each, p in zip(every, adjusted, strict=True))
    if tolerated is not None:
        losses = [each.loss(1 - 2 * ALPHA / count) for each in every]
        above = statistics.holm([replace(loss, value=tolerated - loss.value).p_below() for loss in losses])
        for each, p, loss, p_above in zip(every, adjusted, losses, above, strict=True):
            exceeded = p < ALPHA and p_above < ALPHA and loss.value > 0
            decision = vocab.EXCEEDED if exceeded else vocab.KEPT if loss.high < tolerated else vocab.UNRESOLVED
            bounds = {"low": loss.low, "high": loss.high, "documents": each.documents}
            yield each.pair.row(vocab.TOLERANCE, loss.value, amount=tolerated, condition=decision, **bounds)
    scores = {(pair.against, pair.task, pair.metric): (pair, pair.baseline) for pair in pairs}
    scores |= {(pair.arm, pair.task, pair.metric): (pair, pair.other) for pair in pairs}
    for (arm, _, _), (pair, values) in scores.items():
        value, low, high = statistics.mean_of(_linear(*pair.aggregation.ratio(values)), fewest=FEWEST_UNITS)
        yield pair.row(vocab.EVALUATED, value, low=low, high=high, documents=len(values), arm=arm, against=None)
