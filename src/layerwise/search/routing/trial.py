"""A router on questions that it was not fitted to, beside what it has to beat, at the same mean layers.

Questions are divided into folds; the router that chooses the plans of one fold was fitted to the others, and so were
the fixed plans beside it. A seed is one division and its fits; over several seeds a question has the mean of its
values, and stays one question. With C the router's mean layers, its own time among them, the arms are

    fixed             the mixture of two fixed plans with C mean layers that was best on the questions of the fit
    hindsight         the same, best on the very questions of the test: more than anyone could have known
    permuted          the router's own plans dealt out at random among the questions: the same plans, no prompt
    permuted_in_task  the same among the questions of each task: what is above it is more than knowing the task
    random            every candidate equally often, whatever it costs
    oracle            the best plan of each question within C; a ceiling that picks noise
    oracle_of_noise   the same where every plan's outcomes are dealt out at random: what picking noise alone gives

`fixed` and the two permuted arms are expectations, computed and not drawn. A gain is the router's value less the arm's,
question by question. The mean layers C, and so the mixture and the shares of the plans, are estimates too: a gain has
the first-order influence of its question on them, so that standard errors over questions count it.

A conclusion is of the fitting, not of one fit: other questions would have chosen other fixed plans and another router,
and that moves the gain as much as the questions of the test do. Intervals and p-values of gains are Student's over
questions, with the standard error times

    sqrt(1 + K n_test / n_fit)        K folds, each of n_test questions, fitted to n_fit others

(Nadeau and Bengio 2003, "Inference for the generalization error"): 1.5 of five folds. In simulated studies the gain
varied 1.0 to 1.7 times as much as its plain standard error over questions says.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from scipy import optimize
from sklearn.model_selection import StratifiedKFold

from layerwise.measure.stats.estimate import Estimate
from layerwise.measure.stats.statistics import Numbers, holm, student_interval
from layerwise.results.rows import Score
from layerwise.results.selection import PRESENT, Rows
from layerwise.results.vocabulary import ROUTE, ROUTE_VERDICT, ROUTER
from layerwise.search.routing.router import RoutingTable, layers_of

FOLDS = 5
ALPHA = 0.05
"""The error rate of a decision."""

GAIN, LAYERS = "_gain", "_layers"
"""How the metrics of gains and of mean layers end; a score has no ending."""

RoutingDecision = Literal["above", "equivalent", "below", "unresolved"]


def best_mixture(scores: Numbers, layers: Numbers, limit: float) -> Numbers:
    """The shares (plans,) of at most two plans whose mean score is the greatest within `limit` mean layers.

    A fixed plan has one cost. At a mean cost between those of two plans the best that fixed plans can do is to draw,
    for each prompt by itself, one of two of them: the upper concave hull of all (layers, score). `scores` and `layers`
    are (plans,). A limit below the cheapest plan is taken as that plan's.

    >>> best_mixture(np.array([0.2, 0.3, 0.8]), np.array([4.0, 6.0, 8.0]), 7.0).tolist()
    [0.25, 0.0, 0.75]
    """
    limit = max(limit, float(layers.min()))
    within, beyond = np.flatnonzero(layers <= limit), np.flatnonzero(layers > limit)
    shares = np.zeros(len(layers))
    alone = within[np.argmax(scores[within])]
    shares[alone] = 1.0
    if len(beyond):
        first, second = np.meshgrid(within, beyond, indexing="ij")
        part = (limit - layers[first]) / (layers[second] - layers[first])
        values = scores[first] + part * (scores[second] - scores[first])
        best = np.unravel_index(int(values.argmax()), values.shape)
        if values[best] > scores[alone] + 1e-12:  # of equal values one plan: rounding decides nothing
            shares[alone] = 0.0
            shares[first[best]], shares[second[best]] = 1.0 - part[best], part[best]
    return shares


def slope(shares: Numbers, scores: Numbers, layers: Numbers) -> float:
    """What one more mean layer is worth to a mixture of two plans, in the unit of `scores`; 0 for a single plan."""
    used = np.flatnonzero(shares)
    low, high = used[np.argmin(layers[used])], used[np.argmax(layers[used])]
    return 0.0 if low == high else float((scores[high] - scores[low]) / (layers[high] - layers[low]))


def oracle(scores: Numbers, layers: Numbers, limit: float) -> Numbers:
    """What knowing every outcome would give within `limit` mean layers: one value a question, (questions,).

        min over price >= 0 of mean over questions of max over plans of (score - price * (layers - limit))

    The dual of the linear programme that assigns plans, or mixtures of them, to questions; its mean is the programme's
    value. It picks noise: of plans that are right at random, some one is right nearly always.

    >>> round(float(oracle(np.array([[0.0, 1.0], [1.0, 1.0]]), np.array([4.0, 8.0]), 6.0).mean()), 6)
    1.0
    """
    limit = max(limit, float(layers.min()))

    def values(price: float) -> Numbers:
        return np.asarray((scores - price * (layers - limit)).max(axis=1))

    # Costs differ by a layer at least, and no difference of scores is worth more than their range.
    highest = float(np.ptp(scores)) + 1e-9
    best = optimize.minimize_scalar(lambda price: values(price).mean(), bounds=(0.0, highest), method="bounded")
    return min((values(price) for price in (0.0, float(best.x))), key=lambda each: float(each.mean()))


Combine = Callable[[Sequence[Numbers]], Numbers]


def _mean(values: Sequence[Numbers]) -> Numbers:
    return np.asarray(np.mean(values, axis=0))


@dataclass(frozen=True, slots=True, eq=False)
class RoutedQuestions:
    """Questions under the plans of a router and under every arm.

    `values` (questions,) stand by the ending of their metric and the arm: scores, the router's gains over the arms, and
    its layers, its own time among them. `shares` are what each plan has of a task's questions, (plans,) by task. The
    standard error of a gain is multiplied by `inflation`, because the fit would have been another one.
    """

    values: Mapping[tuple[str, str], Numbers]
    shares: Mapping[str, Numbers]
    inflation: float

    @classmethod
    def combined(cls, parts: Sequence[RoutedQuestions], combine: Combine = _mean) -> RoutedQuestions:
        """Several as one: of every question the mean values, or what `combine` makes of them, and the mean shares."""
        values = {key: combine([part.values[key] for part in parts]) for key in parts[0].values}
        shares = {
            task: _mean([part.shares[task] for part in parts if task in part.shares])
            for task in sorted({task for part in parts for task in part.shares})
        }
        return cls(values, shares, parts[0].inflation)

    def rows(self, measure: str, metric: str, *, gains: bool = True, **columns: Any) -> Iterator[Score]:
        """The mean of all values with Student's interval, gains with p and mde; `columns` say which questions."""
        kept = {key: values for key, values in self.values.items() if gains or key[0] != GAIN}
        count = len(next(iter(kept.values())))
        means = student_interval(np.stack(list(kept.values())), np.ones(count)).each()
        for (ending, arm), mean in zip(kept, means, strict=True):
            about: dict[str, Any] = {"documents": count, "arm": arm, **columns}
            if ending == GAIN:
                mean = Estimate.student(mean.value, self.inflation * mean.error, mean.freedom)
                about |= {"p": float(mean.p()), "mde": float(mean.detectable())}
            yield Score(measure, metric + ending, *mean.row(), **about)


@dataclass(frozen=True, slots=True, eq=False)
class RoutingDivision:
    """The questions of a table in parts, each with what its router is fitted to; `seed` draws the noise."""

    table: RoutingTable
    parts: tuple[tuple[Any, RoutingTable], ...]
    inflation: float
    seed: int

    @classmethod
    def folds(cls, table: RoutingTable, seed: int) -> RoutingDivision:
        """Divide the questions of every task evenly among the folds, and fit; tasks of few questions are one."""
        names, task, counts = np.unique(table.tasks, return_inverse=True, return_counts=True)
        groups = np.where(counts[task] < FOLDS, len(names), task)
        if 0 < (groups == len(names)).sum() < FOLDS:
            groups = np.zeros_like(groups)
        folds = StratifiedKFold(FOLDS, shuffle=True, random_state=seed).split(groups, groups)
        parts = tuple((unseen, table.part(fitted)) for fitted, unseen in folds)
        return cls(table, parts, math.sqrt(1 + FOLDS / (FOLDS - 1)), seed)

    @classmethod
    def fitted_to(cls, other: RoutingTable, table: RoutingTable, seed: int) -> RoutingDivision:
        """All questions of a table, with the router of all of another."""
        count = len(table.scores)
        return cls(table, ((np.arange(count), other),), math.sqrt(1 + count / len(other.scores)), seed)

    def within(self, limit: float, router_layers: float) -> RoutedQuestions:
        """Every question under the plan of the router that has not seen it, `limit` mean layers at most.

        `router_layers` are the layers that the time of the router is worth.
        """
        parts = [self._routed(self.table.part(rows), known, limit, router_layers) for rows, known in self.parts]
        order = np.argsort(np.concatenate([rows for rows, _ in self.parts]))
        return RoutedQuestions.combined(parts, lambda values: np.concatenate(values)[order])

    def _routed(self, test: RoutingTable, known: RoutingTable, limit: float, router_layers: float) -> RoutedQuestions:
        layers, scores = layers_of(test.plans), test.scores
        choices = known.router(limit - router_layers).choices(test.features)
        spent = layers[choices] + router_layers
        mean = float(spent.mean())
        own = scores[np.arange(len(scores)), choices]
        noise = np.random.default_rng(self.seed).permuted(scores, axis=0)
        arms = {ROUTER: own, "random": scores.mean(axis=1)}
        arms |= {"oracle": oracle(scores, layers, mean), "oracle_of_noise": oracle(noise, layers, mean)}
        gains = {"random": own - arms["random"]}
        for name, means in (("fixed", known.scores.mean(axis=0)), ("hindsight", scores.mean(axis=0))):
            mixture = best_mixture(means, layers, mean)
            arms[name] = scores @ mixture
            gains[name] = own - arms[name] - slope(mixture, scores.mean(axis=0), layers) * (spent - mean)
        for name, tasks in (("permuted", np.full(len(scores), "")), ("permuted_in_task", test.tasks)):
            arms[name], gains[name], shares = np.empty(len(scores)), np.empty(len(scores)), dict[str, Numbers]()
            for task in np.unique(tasks):
                rows = np.flatnonzero(tasks == task)
                shares[str(task)] = dealt = np.bincount(choices[rows], minlength=len(layers)) / len(rows)
                means = scores[rows].mean(axis=0)
                arms[name][rows] = scores[rows] @ dealt
                gains[name][rows] = own[rows] - arms[name][rows] - (means[choices[rows]] - dealt @ means)
        values = {("", arm): each for arm, each in arms.items()} | {(LAYERS, ROUTER): spent}
        return RoutedQuestions(values | {(GAIN, arm): each for arm, each in gains.items()}, shares, self.inflation)


def decision(fixed: Score, permuted: Score, margin: float) -> RoutingDecision:
    """Whether a router is above the best fixed plans, from its gains over them and over its own plans, dealt out.

        above        both gains are above 0 at 5 % (an intersection-union test, which needs no correction; Berger
                     1982). The first alone may be luck in the choice of the fixed plans, the second alone a costlier
                     way to be no better than they are
        equivalent   the interval of the gain over fixed plans lies within `margin` on both sides
        below        it is below the fixed plans at 5 %
        unresolved   anything else

    How often a router that reads nothing is called `above`, and how often a gain beyond the margin is called
    `equivalent` or `below`, was counted on planted truths (tests/search/routing).
    """

    def clear(gain: Score) -> bool:
        p = gain.p if gain.p_adjusted is None else gain.p_adjusted
        return p is not None and p < ALPHA

    if all(clear(gain) and gain.value > 0 for gain in (fixed, permuted)):
        return "above"
    if fixed.low is not None and fixed.high is not None and -margin < fixed.low and fixed.high < margin:
        return "equivalent"
    return "below" if clear(fixed) and fixed.value < 0 else "unresolved"


def verdict_rows(rows: Rows, metric: str, margin: float, limit: float) -> Iterator[Score]:
    """The decisions on the gains among `rows`, in the unit of `metric`, with the margin and the limit of mean layers.

    p-values are corrected (Holm) over the task sets, and over the pairs of a set that was fitted and one that is asked.
    """
    yield Score(ROUTE_VERDICT, "margin", margin, condition=metric)
    yield Score(ROUTE_VERDICT, "limit", limit, condition=metric)
    for fitted in (None, PRESENT):
        gains = rows.where(measure=ROUTE, metric=metric + GAIN, condition=fitted)
        fixed, permuted = (_corrected(gains.where(arm=arm)) for arm in ("fixed", "permuted"))
        for first, second in zip(fixed, permuted, strict=True):
            yield replace(first, measure=ROUTE_VERDICT, arm=ROUTER, metric=decision(first, second, margin))


def _corrected(rows: Rows) -> list[Score]:
    values = holm([1.0 if row.p is None else row.p for row in rows])
    return [replace(row, p_adjusted=float(p)) for row, p in zip(rows, values, strict=True)]
