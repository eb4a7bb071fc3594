"""The rows of a routing.

In all of them `task` is the task set that is asked, and `condition` the other set that a router was fitted to.

route          arm: `accuracy` (`nats`), the mean with its interval; `accuracy_gain`, the router's less the arm's, with
               p and mde; `accuracy_layers` of the router
route_seed     arm, seed: the same means, and the gains, of one division
route_curve    arm: `accuracy` and `accuracy_layers` at one of several budgets (`amount` is its number)
route_plan     plan: its `accuracy` with interval, and its `layers`
route_share    plan: the `share` of the questions of one task of the set (`condition`) that the router gives the plan
route_time     of the router: `ms`, `layers`, and `tokens` of the prompts; `layer_ms`, what a layer takes
route_verdict  of the router, metric the decision: the gain over fixed plans; and `margin` and `limit` of the score that
               is judged (`condition`)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from layerwise.measure.stats.statistics import Numbers, student_interval
from layerwise.plan import Plan
from layerwise.results.rows import Score
from layerwise.results.selection import Rows
from layerwise.results.vocabulary import (
    MILLISECONDS,
    ROUTE,
    ROUTE_CURVE,
    ROUTE_PLAN,
    ROUTE_SEED,
    ROUTE_SHARE,
    ROUTE_TIME,
    ROUTE_VERDICT,
    ROUTER,
)
from layerwise.search.routing.router import layers_of
from layerwise.search.routing.router_time import RouterTime
from layerwise.search.routing.trial import RoutedQuestions
from layerwise.search.routing.verdict import RoutingCriterion, adjusted, gain_rows

Sets = tuple[str | None, str]
"""The set that a router was fitted to, where that is another one, and the set that it is asked."""


def arm_rows(sets: Sets, metric: str, routed: RoutedQuestions) -> list[Score]:
    """Every arm's mean score, the router's mean layers, and its gain over every arm."""
    own = {"condition": sets[0], "task": sets[1]}
    gains = gain_rows(ROUTE, f"{metric}_gain", routed.gains, routed.inflation, **own)
    return [*_arm_means(ROUTE, metric, routed, **own), *gains]


def seed_rows(task: str, metric: str, trials: Sequence[RoutedQuestions]) -> list[Score]:
    """The means of one division, without intervals: those over seeds are of the same questions."""
    return [
        Score(ROUTE_SEED, name, float(values.mean()), task=task, arm=arm, seed=seed, documents=len(values))
        for seed, trial in enumerate(trials)
        for name, arms in ((metric, trial.scores), (f"{metric}_gain", trial.gains))
        for arm, values in arms.items()
    ]


def curve_rows(task: str, metric: str, number: int, routed: RoutedQuestions) -> list[Score]:
    """The arms of a picture, at one budget."""
    return _arm_means(ROUTE_CURVE, metric, routed, task=task, amount=number)


def plan_rows(task: str, metric: str, plans: tuple[Plan, ...], scores: Numbers) -> list[Score]:
    """The candidates: mean scores of (questions, plans)."""
    return _means(ROUTE_PLAN, metric, scores.T, [{"task": task, "plan": str(plan)} for plan in plans])


def layer_rows(task: str, plans: tuple[Plan, ...]) -> list[Score]:
    """The candidates: their layers."""
    layers = layers_of(plans).tolist()
    return [
        Score(ROUTE_PLAN, "layers", value, task=task, plan=str(plan)) for plan, value in zip(plans, layers, strict=True)
    ]


def share_rows(task: str, plans: tuple[Plan, ...], routed: RoutedQuestions) -> list[Score]:
    """How often each plan is chosen, in each task of the set."""
    return [
        Score(ROUTE_SHARE, "share", float(share), task=task, plan=str(plan), condition=kind)
        for kind, shares in routed.shares.items()
        for plan, share in zip(plans, shares, strict=True)
    ]


def time_rows(time: RouterTime) -> list[Score]:
    """What choosing takes."""
    return [
        Score(ROUTE_TIME, MILLISECONDS, time.router, time.low, time.high, arm=ROUTER),
        Score(ROUTE_TIME, "layer_ms", time.layer),
        Score(ROUTE_TIME, "layers", time.layers, arm=ROUTER),
        Score(ROUTE_TIME, "tokens", float(time.tokens), arm=ROUTER),
    ]


def verdict_rows(
    rows: Sequence[Score], groups: Sequence[Sequence[Sets]], metric: str, criterion: RoutingCriterion, limit: float
) -> list[Score]:
    """The decisions on the gains among `rows`; p-values are corrected over the task sets of a group (Holm)."""
    made = [
        Score(ROUTE_VERDICT, "margin", criterion.margin, condition=metric),
        Score(ROUTE_VERDICT, "limit", limit, condition=metric),
    ]
    gains = Rows(rows).where(metric=f"{metric}_gain")
    for group in groups:
        fixed, permuted = (
            adjusted([gains.where(arm=arm, condition=fitted, task=task)[0] for fitted, task in group])
            for arm in ("fixed", "permuted")
        )
        for first, second in zip(fixed, permuted, strict=True):
            decision = criterion.concludes(first, second)
            made.append(replace(first, measure=ROUTE_VERDICT, arm=ROUTER, metric=decision))
    return made


def _arm_means(measure: str, metric: str, routed: RoutedQuestions, **columns: Any) -> list[Score]:
    arms = [{"arm": arm, **columns} for arm in routed.scores]
    means = _means(measure, metric, np.stack(list(routed.scores.values())), arms)
    return [*means, *_means(measure, f"{metric}_layers", routed.layers[None], [{"arm": ROUTER, **columns}])]


def _means(measure: str, metric: str, values: Numbers, columns: Sequence[dict[str, Any]]) -> list[Score]:
    """The mean of each row of (rows, questions), with Student's interval: nothing is decided by it."""
    estimate = student_interval(values, np.ones(values.shape[1]))
    return [
        Score(
            measure, metric, float(estimate.value[row]), float(estimate.low[row]), float(estimate.high[row]),
            documents=values.shape[1], **own,
        )
        for row, own in enumerate(columns)
    ]  # fmt: skip
