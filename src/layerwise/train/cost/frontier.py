"""Cost frontier of uniform training (all layers in every step), and the distance of other training runs from it.

    loss(c) = loss_i + (loss_k - loss_i) * (log c - log c_i) / (log c_k - log c_i)     c_i <= c <= c_k neighbors
    saving  = 1 - exp(mean over seeds s of log(c_s / C_s))     c_s: cost to reach the loss of uniform training at C_s

Uniform training is run for several numbers of steps, each with a full learning rate schedule; every seed has a frontier
through its runs. Differences are taken within seeds. They have Student t intervals over seeds, and p-values with
Holm's correction over variants. The frontier is extrapolated by at most `SLACK`. If a run never reaches a loss, its
cost is censored and gives a bound.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import exp, log
from typing import Any, Literal

import numpy as np
from scipy.optimize import isotonic_regression

from layerwise.measure.stats.seeds import SeedDifference, seed_difference
from layerwise.measure.stats.statistics import holm_by_key
from layerwise.results.rows import Score
from layerwise.results.vocabulary import (
    AT,
    DIFFERENCE,
    FLOPS,
    GROWTH,
    NEVER,
    SAVING,
    SAVING_AT_LEAST,
    SAVING_AT_MOST,
    SECONDS,
    SOONER,
    UNIFORM_TRAINING,
)

COSTS = (FLOPS, SECONDS)
"""Costs at which training runs are compared: floating-point operations, and seconds of training steps."""

SLACK = 0.01
"""Maximum extrapolation of a frontier beyond its ends, relative to the cost there."""

EQUAL: Mapping[str, float] = {"tokens": 0.01, "flops": 0.01, "seconds": 0.05}
"""Relative difference up to which two training runs have equal cost."""


@dataclass(frozen=True, slots=True)
class CostPoint:
    """Result of a training run: the held-out loss in nats/token, and the costs by name (`COSTS` and `tokens`)."""

    loss: float
    costs: Mapping[str, float]


Points = Mapping[int, CostPoint]
"""Training run of one variant for each seed."""


def loss_at(lengths: Iterable[CostPoint], amount: float, cost: str) -> float | None:
    """Interpolate the loss at the cost `amount` between training runs of several lengths; None outside their range.

    If there is a single run, return its loss if its cost equals `amount` within the tolerance `EQUAL`.

    >>> lengths = [CostPoint(loss, {"flops": flops}) for flops, loss in ((100.0, 3.0), (400.0, 2.0))]
    >>> round(loss_at(lengths, 200.0, "flops"), 6), loss_at(lengths, 500.0, "flops")
    (2.5, None)
    """
    known: dict[float, float] = {}
    for point in lengths:
        known.setdefault(point.costs[cost], point.loss)
    costs = sorted(known)
    if len(costs) == 1:
        return known[costs[0]] if abs(amount - costs[0]) <= EQUAL[cost] * costs[0] else None
    if not costs[0] * (1 - SLACK) <= amount <= costs[-1] * (1 + SLACK):
        return None
    upper = min(max(1, bisect_left(costs, amount)), len(costs) - 1)
    low, high = costs[upper - 1], costs[upper]
    share = (log(amount) - log(low)) / (log(high) - log(low))
    return known[low] + share * (known[high] - known[low])


def difference_at(variant: Points, lengths: Mapping[int, Sequence[CostPoint]], cost: str) -> SeedDifference | None:
    """Return the mean over seeds of the variant's loss minus the loss of uniform training at equal cost.

    Return None if, for a seed, the cost of the variant is outside the range of the uniform training runs.
    """
    shared = sorted(set(variant) & set(lengths))
    uniform = {seed: loss_at(lengths[seed], variant[seed].costs[cost], cost) for seed in shared}
    known = {seed: loss for seed, loss in uniform.items() if loss is not None}
    if not known or len(known) < len(uniform):
        return None
    return seed_difference({seed: variant[seed].loss for seed in shared}, known)


def compare_at_cost(
    variants: Mapping[str, Points], lengths: Mapping[int, Sequence[CostPoint]]
) -> tuple[list[Score], list[str]]:
    """Compare every variant with uniform training runs of several lengths (`lengths`, by seed) at equal cost.

    If uniform training has only one length, variants with another cost have no rows.

    Returns:
        Result rows of the measure `growth`, whose `unit` is the name of the cost, and notes on variants that are not
        compared. The metrics are `difference` in nats/token, below 0 if the variant is better, and `at`, the mean cost
        of the variant.
    """
    rows: list[Score] = []
    notes: list[str] = []
    is_frontier = any(len(points) > 1 for points in lengths.values())
    for cost in COSTS:
        every = {variant: difference_at(points, lengths, cost) for variant, points in variants.items()}
        compared = {variant: each for variant, each in every.items() if each is not None}
        rows += difference_rows(compared, UNIFORM_TRAINING, cost)
        for variant in variants if is_frontier else compared:
            spent = float(np.mean([point.costs[cost] for point in variants[variant].values()]))
            rows.append(Score(GROWTH, AT, spent, variant=variant, against=UNIFORM_TRAINING, unit=cost))
        notes += [
            f"{variant} is not compared with uniform at equal {cost}: its cost is outside the range of the uniform "
            "training runs"
            for variant in variants
            if is_frontier and variant not in compared
        ]
    return rows, notes


def difference_rows(differences: Mapping[str, SeedDifference], name: str, cost: str) -> list[Score]:
    adjusted = holm_by_key({variant: each.p for variant, each in differences.items()})
    return [
        Score(
            GROWTH,
            DIFFERENCE,
            each.value,
            each.low,
            each.high,
            each.p,
            p_adjusted=adjusted.get(variant),
            mde=each.mde,
            variant=variant,
            against=name,
            unit=cost,
        )
        for variant, each in differences.items()
    ]


Censored = Literal["exact", "never", "sooner"]
"""The loss is reached at the cost (`exact`), never, or before the first known cost (`sooner`)."""


@dataclass(frozen=True, slots=True)
class Reached:
    """Cost at which a loss is reached; a bound unless `censored` is `exact`."""

    cost: float
    censored: Censored = "exact"


def cost_to_loss(costs: Sequence[float], losses: Sequence[float], loss: float) -> Reached:
    """Interpolate the cost to reach `loss`, given the `losses` at `costs`.

    >>> round(cost_to_loss([100.0, 400.0], [3.0, 2.0], 2.5).cost, 6)
    200.0
    >>> cost_to_loss([100.0, 400.0], [3.0, 2.0], 1.9)
    Reached(cost=400.0, censored='never')
    """
    points = sorted(zip(costs, losses, strict=True))
    costs, losses = [float(each) for each, _ in points], descending([each for _, each in points])
    if loss < losses[-1]:
        return Reached(costs[-1], "never")
    if loss > losses[0]:
        return Reached(costs[0], "sooner")
    after = bisect_left([-each for each in losses], -loss)
    if losses[after] == loss:
        return Reached(costs[after])
    share = (losses[after - 1] - loss) / (losses[after - 1] - losses[after])
    return Reached(exp(log(costs[after - 1]) + share * (log(costs[after]) - log(costs[after - 1]))))


def descending(losses: Sequence[float]) -> list[float]:
    """Return the best descending fit of the losses by least squares (isotonic regression).

    >>> descending([5.0, 3.0, 4.0, 2.0])
    [5.0, 3.5, 3.5, 2.0]
    """
    monotone: list[float] = isotonic_regression(losses, increasing=False).x.tolist()
    return monotone


def saving_rows(variant: str, trainings: Mapping[int, Sequence[CostPoint]], uniform: Points) -> list[Score]:
    """Return the share of each cost that a variant saves in reaching the loss of uniform training.

    The metric is `SAVING`, with an interval over seeds. If some seeds never reached the loss, it is `SAVING_AT_MOST`,
    and a row `NEVER` counts these seeds. If some were below the loss at their first evaluation, it is
    `SAVING_AT_LEAST`, and a row `SOONER` counts them. If both happened, the cost has no rows. Only seeds that both the
    variant and uniform training have are used.
    """
    shared = sorted(set(trainings) & set(uniform))
    rows = []
    for cost in COSTS if shared else ():
        reached = {}
        for seed in shared:
            curve = trainings[seed]
            costs, losses = [point.costs[cost] for point in curve], [point.loss for point in curve]
            reached[seed] = cost_to_loss(costs, losses, uniform[seed].loss)
        never, sooner = (sum(each.censored == kind for each in reached.values()) for kind in ("never", "sooner"))
        if never and sooner:
            continue
        spent = {seed: uniform[seed].costs[cost] for seed in shared}
        ratio = log_ratio({seed: each.cost for seed, each in reached.items()}, spent)
        value = 1 - exp(ratio.value)
        low, high = (None if bound is None else 1 - exp(bound) for bound in (ratio.high, ratio.low))
        columns: dict[str, Any] = {"variant": variant, "against": UNIFORM_TRAINING, "unit": cost}
        if never:
            rows.append(Score(GROWTH, SAVING_AT_MOST, value if high is None else high, **columns))
            rows.append(Score(GROWTH, NEVER, float(never), **columns))
        elif sooner:
            rows.append(Score(GROWTH, SAVING_AT_LEAST, value if low is None else low, **columns))
            rows.append(Score(GROWTH, SOONER, float(sooner), **columns))
        else:
            rows.append(Score(GROWTH, SAVING, value, low, high, **columns))
    return rows


def log_ratio(values: Mapping[int, float], others: Mapping[int, float]) -> SeedDifference:
    """Return the mean of `log(value / other)` over the seeds, paired by seed, with a Student t interval.

    >>> round(exp(log_ratio({0: 2.0, 1: 8.0}, {0: 1.0, 1: 1.0}).value), 6)
    4.0
    """
    return seed_difference(
        {seed: log(value) for seed, value in values.items()}, {seed: log(value) for seed, value in others.items()}
    )


def ratio_row(measure: str, metric: str, logs: SeedDifference, **columns: Any) -> Score:
    low, high = (None if bound is None else exp(bound) for bound in (logs.low, logs.high))
    return Score(measure, metric, exp(logs.value), low, high, **columns)
