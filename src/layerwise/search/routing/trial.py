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
question by question. The mean layers C, and so the point of the hull and the shares of the plans, are estimates too:
a gain has the first-order influence of its question on them, so that standard errors over questions count it.

A fixed plan has one cost. At a mean cost between those of two plans the best that fixed plans can do is to draw, for
each prompt by itself, one of two of them: the upper concave hull of all (layers, score).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy import optimize
from sklearn.model_selection import StratifiedKFold

from layerwise.measure.stats.statistics import Numbers
from layerwise.plan import Plan
from layerwise.results.vocabulary import ROUTER
from layerwise.search.routing.router import PlanRouter, RouterFit, fit_router, layers_of


def best_mixture(scores: Numbers, layers: Numbers, limit: float) -> Numbers:
    """The shares (plans,) of at most two plans whose mean score is the greatest within `limit` mean layers.

    `scores` and `layers` are (plans,). A limit below the cheapest plan is taken as that plan's.

    >>> best_mixture(np.array([0.2, 0.3, 0.8]), np.array([4.0, 6.0, 8.0]), 7.0).tolist()
    [0.25, 0.0, 0.75]
    """
    limit = max(limit, float(layers.min()))
    first, second = np.meshgrid(np.arange(len(layers)), np.arange(len(layers)), indexing="ij")
    gap = layers[second] - layers[first]
    # The share of the dearer plan that uses up the limit; a pair of equal cost is its first plan alone.
    share = np.divide(limit - layers[first], gap, out=np.zeros(gap.shape), where=gap > 0)
    values = scores[first] + np.clip(share, 0.0, 1.0) * (scores[second] - scores[first])
    values[(gap < 0) | (layers[first] > limit)] = -np.inf
    # A dearer plan that scores less is no reason to spend more.
    alone = np.where(layers <= limit, scores, -np.inf)
    np.fill_diagonal(values, alone)
    # Of equal values the pair that is one plan: rounding decides nothing.
    row, column = np.unravel_index(int(np.argmax(values + 1e-12 * np.eye(len(layers)))), values.shape)
    shares = np.zeros(len(layers))
    shares[row] += 1.0
    if row != column:
        part = float(np.clip(share[row, column], 0.0, 1.0))
        shares[row], shares[column] = 1.0 - part, part
    return shares


def slope(shares: Numbers, scores: Numbers, layers: Numbers) -> float:
    """What one more mean layer is worth to a mixture of two plans, in the unit of `scores`; 0 for a single plan."""
    used = np.flatnonzero(shares)
    if len(used) < 2:
        return 0.0
    low, high = sorted(used, key=lambda plan: layers[plan])
    return float((scores[high] - scores[low]) / (layers[high] - layers[low]))


def oracle(scores: Numbers, layers: Numbers, limit: float) -> Numbers:
    """What knowing every outcome would give within `limit` mean layers: one value a question, (questions,).

        min over price >= 0 of mean over questions of max over plans of (score - price * (layers - limit))

    The dual of the linear programme that assigns plans, or mixtures of them, to questions; its mean is the programme's
    value. It picks noise: of plans that are right at random, some one is right nearly always.

    >>> round(float(oracle(np.array([[0.0, 1.0], [1.0, 1.0]]), np.array([4.0, 8.0]), 6.0).mean()), 6)
    1.0
    """
    limit = max(limit, float(layers.min()))
    gaps = np.diff(np.unique(layers))
    if not len(gaps):
        return np.asarray(scores.max(axis=1))

    def values(price: float) -> Numbers:
        return np.asarray((scores - price * (layers - limit)).max(axis=1))

    highest = float(np.ptp(scores)) / float(gaps.min()) + 1e-9
    best = optimize.minimize_scalar(lambda price: values(price).mean(), bounds=(0.0, highest), method="bounded")
    prices = (0.0, float(best.x))
    return min((values(price) for price in prices), key=lambda each: float(each.mean()))


FOLDS = 5
NULLS = ("fixed", "hindsight", "permuted", "permuted_in_task", "random")
"""The arms that a router has to beat."""


@dataclass(frozen=True, slots=True, eq=False)
class RoutingTable:
    """What routers are fitted to: scores (questions, plans), features (questions, features), and each one's task."""

    plans: tuple[Plan, ...]
    tasks: Numbers
    scores: Numbers
    features: Numbers
    prefix: int

    def part(self, rows: Numbers) -> RoutingTable:
        """Some of the questions."""
        return replace(self, tasks=self.tasks[rows], scores=self.scores[rows], features=self.features[rows])

    def fit(self) -> RouterFit:
        """The router of all of these questions."""
        return fit_router(self.features, self.scores, self.plans, self.prefix)


@dataclass(frozen=True, slots=True, eq=False)
class RoutedQuestions:
    """Questions with their plans: `layers` (questions,) with the router's own, `shares` of the plans (tasks, plans),

    `scores[arm]` and `gains[arm]` of (questions,). `inflation` is what the standard error of a gain is multiplied by,
    because the fit would have been another one (`layerwise.search.routing.verdict`).
    """

    layers: Numbers
    shares: Mapping[str, Numbers]
    scores: Mapping[str, Numbers]
    gains: Mapping[str, Numbers]
    inflation: float


@dataclass(frozen=True, slots=True, eq=False)
class RoutingDivision:
    """One seed: for each fold its questions, and what was fitted to all others."""

    table: RoutingTable
    folds: tuple[tuple[Numbers, RouterFit, Numbers], ...]
    seed: int

    @classmethod
    def of(cls, table: RoutingTable, seed: int) -> RoutingDivision:
        """Divide the questions of every task evenly among the folds, and fit; tasks of few questions are one."""
        names, task, counts = np.unique(table.tasks, return_inverse=True, return_counts=True)
        groups = np.where(counts[task] < FOLDS, len(names), task)
        if 0 < (groups == len(names)).sum() < FOLDS:
            groups = np.zeros_like(groups)
        folds = []
        for fitted, unseen in StratifiedKFold(FOLDS, shuffle=True, random_state=seed).split(groups, groups):
            train = table.part(fitted)
            folds.append((unseen, train.fit(), train.scores.mean(axis=0)))
        return cls(table, tuple(folds), seed)

    def within(self, limit: float, router_layers: float) -> RoutedQuestions:
        """Every question under the plan of the router that has not seen it, `limit` mean layers at most."""
        total, parts = len(self.table.scores), []
        for rows, fit, means in self.folds:
            router, unseen = fit.within(limit - router_layers), self.table.part(rows)
            parts.append(routed(router, means, total - len(rows), unseen, router_layers, self.seed))
        order = np.argsort(np.concatenate([rows for rows, _, _ in self.folds]))
        shares = {
            task: np.mean([part.shares[task] for part in parts if task in part.shares], axis=0)
            for task in np.unique(self.table.tasks)
        }
        inflation = math.sqrt(1 + FOLDS / (FOLDS - 1))
        return _combined(parts, lambda values: np.concatenate(values)[order], shares, inflation)


def routed(
    router: PlanRouter, known: Numbers, fitted: int, test: RoutingTable, router_layers: float, seed: int = 0
) -> RoutedQuestions:
    """The questions of `test` under the router's plans and under every arm.

    `known` (plans,) are the mean scores of the `fitted` questions that the router was fitted to; they choose the fixed
    plans.
    """
    layers, scores = layers_of(test.plans), test.scores
    choices = router.choices(test.features)
    spent = layers[choices] + router_layers
    mean = float(spent.mean())
    own = scores[np.arange(len(scores)), choices]
    chance = np.random.default_rng(seed)
    arms = {
        ROUTER: own,
        "random": scores.mean(axis=1),
        "oracle": oracle(scores, layers, mean),
        "oracle_of_noise": oracle(chance.permuted(scores, axis=0), layers, mean),
    }
    gains = {"random": own - arms["random"]}
    for name, means in (("fixed", known), ("hindsight", scores.mean(axis=0))):
        shares = best_mixture(means, layers, mean)
        arms[name] = scores @ shares
        gains[name] = own - arms[name] - slope(shares, scores.mean(axis=0), layers) * (spent - mean)
    one = np.full(len(scores), "")
    for name, groups in (("permuted", one), ("permuted_in_task", test.tasks)):
        arms[name], gains[name] = _permuted(scores, choices, groups)
    usage = {
        str(task): np.bincount(choices[test.tasks == task], minlength=len(layers)) / (test.tasks == task).sum()
        for task in np.unique(test.tasks)
    }
    return RoutedQuestions(spent, usage, arms, gains, math.sqrt(1 + len(scores) / fitted))


def _permuted(scores: Numbers, choices: Numbers, groups: Numbers) -> tuple[Numbers, Numbers]:
    """The expected score of each question when the plans are dealt out at random within its group, and the gain."""
    expected, gain = np.empty(len(scores)), np.empty(len(scores))
    for group in np.unique(groups):
        rows = np.flatnonzero(groups == group)
        own, picks = scores[rows], choices[rows]
        shares = np.bincount(picks, minlength=scores.shape[1]) / len(rows)
        means = own.mean(axis=0)
        expected[rows] = own @ shares
        gain[rows] = own[np.arange(len(rows)), picks] - expected[rows] - (means[picks] - shares @ means)
    return expected, gain


def pooled(trials: Sequence[RoutedQuestions]) -> RoutedQuestions:
    """The mean of every value of every question over seeds."""

    def mean(values: Sequence[Numbers]) -> Numbers:
        return np.asarray(np.mean(np.stack(values), axis=0))

    shares = {task: mean([trial.shares[task] for trial in trials]) for task in trials[0].shares}
    return _combined(trials, mean, shares, trials[0].inflation)


def _combined(
    parts: Sequence[RoutedQuestions], combine: Callable[[Sequence[Numbers]], Numbers], shares: Mapping[str, Numbers],
    inflation: float,
) -> RoutedQuestions:  # fmt: skip
    scores, gains = (
        {arm: combine([getattr(part, name)[arm] for part in parts]) for arm in getattr(parts[0], name)}
        for name in ("scores", "gains")
    )
    return RoutedQuestions(combine([part.layers for part in parts]), shares, scores, gains, inflation)
