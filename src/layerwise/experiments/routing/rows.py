"""The rows of a routing.

route          arm, task set or `A to B` (fitted to A, asked B): `accuracy` (`nats`), the mean with its interval;
               `accuracy_gain`, the router's less the arm's, with p and mde; `accuracy_layers` of the router
route_seed     `ARM/SEED`, task set: the same means, and the gains, of one division
route_curve    arm, task set: `accuracy/N` and `accuracy_layers/N` at the N-th of several budgets
route_plan     plan, task set: its `accuracy` with interval, and its `layers`
route_share    plan, task set, metric a task of it: the share of its questions that the router gives the plan
route_time     `router` and `layer`: `ms`; of the router `layers`, and `tokens` of the prompts
route_verdict  router, task set, metric the decision: the gain over fixed plans; of `all`, task the score
               that is judged: `margin` and `limit`
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from layerwise.measure.stats.statistics import Numbers, student_interval
from layerwise.plan import Plan
from layerwise.results.rows import Score
from layerwise.search.routing.router import layers_of
from layerwise.search.routing.router_time import RouterTime
from layerwise.search.routing.trial import NULLS, ROUTER, RoutedQuestions
from layerwise.search.routing.verdict import RoutingCriterion, adjusted, gain_rows

ROUTE, SEED, CURVE, PLAN, SHARE, TIME, VERDICT = (
    "route", "route_seed", "route_curve", "route_plan", "route_share", "route_time", "route_verdict"
)  # fmt: skip


def arm_rows(task: str, metric: str, routed: RoutedQuestions) -> list[Score]:
    """Every arm's mean score, the router's mean layers, and its gain over every arm."""
    gains = gain_rows(ROUTE, task, f"{metric}_gain", routed.gains, routed.inflation)
    return [*_arm_means(ROUTE, task, metric, routed), *gains]


def seed_rows(task: str, metric: str, trials: Sequence[RoutedQuestions]) -> list[Score]:
    """The means of one division, without intervals: those over seeds are of the same questions."""
    return [
        Score(SEED, f"{arm}/{seed}", task, name, float(values.mean()), documents=len(values))
        for seed, trial in enumerate(trials)
        for name, arms in ((metric, trial.scores), (f"{metric}_gain", trial.gains))
        for arm, values in arms.items()
    ]


def curve_rows(task: str, metric: str, number: int, routed: RoutedQuestions) -> list[Score]:
    """The arms of a picture, at one budget."""
    return [replace(row, metric=f"{row.metric}/{number}") for row in _arm_means(CURVE, task, metric, routed)]


def plan_rows(task: str, metric: str, plans: tuple[Plan, ...], scores: Numbers) -> list[Score]:
    """The candidates: mean scores of (questions, plans)."""
    return _means(PLAN, list(map(str, plans)), task, metric, scores.T)


def layer_rows(task: str, plans: tuple[Plan, ...]) -> list[Score]:
    """The candidates: their layers."""
    layers = layers_of(plans).tolist()
    return [Score(PLAN, str(plan), task, "layers", value) for plan, value in zip(plans, layers, strict=True)]


def share_rows(task: str, plans: tuple[Plan, ...], routed: RoutedQuestions) -> list[Score]:
    """How often each plan is chosen, in each task of the set."""
    return [
        Score(SHARE, str(plan), task, kind, float(share))
        for kind, shares in routed.shares.items()
        for plan, share in zip(plans, shares, strict=True)
    ]


def time_rows(time: RouterTime) -> list[Score]:
    """What choosing takes."""
    return [
        Score(TIME, ROUTER, "all", "ms", time.router, time.low, time.high),
        Score(TIME, "layer", "all", "ms", time.layer),
        Score(TIME, ROUTER, "all", "layers", time.layers),
        Score(TIME, ROUTER, "all", "tokens", float(time.tokens)),
    ]


def verdict_rows(
    rows: Sequence[Score], groups: Sequence[Sequence[str]], metric: str, criterion: RoutingCriterion, limit: float
) -> list[Score]:
    """The decisions on the gains among `rows`; p-values are corrected over the task sets of a group (Holm)."""
    made = [
        Score(VERDICT, "all", metric, "margin", criterion.margin),
        Score(VERDICT, "all", metric, "limit", limit),
    ]
    gains = {(row.subject, row.task): row for row in rows if row.metric == f"{metric}_gain" and row.subject in NULLS}
    for tasks in groups:
        fixed, permuted = (adjusted([gains[arm, task] for task in tasks]) for arm in ("fixed", "permuted"))
        for first, second in zip(fixed, permuted, strict=True):
            decision = criterion.concludes(first, second)
            made.append(replace(first, measure=VERDICT, subject=ROUTER, metric=decision))
    return made


def _arm_means(measure: str, task: str, metric: str, routed: RoutedQuestions) -> list[Score]:
    means = _means(measure, list(routed.scores), task, metric, np.stack(list(routed.scores.values())))
    return [*means, *_means(measure, [ROUTER], task, f"{metric}_layers", routed.layers[None])]


def _means(measure: str, subjects: Sequence[str], task: str, metric: str, values: Numbers) -> list[Score]:
    """The mean of each row of (subjects, questions), with Student's interval: nothing is decided by it."""
    estimate = student_interval(values, np.ones(values.shape[1]))
    return [
        Score(
            measure, subject, task, metric, float(estimate.value[row]), float(estimate.low[row]),
            float(estimate.high[row]), documents=values.shape[1],
        )
        for row, subject in enumerate(subjects)
    ]  # fmt: skip
