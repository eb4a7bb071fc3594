"""Speed of convergence: the steps and seconds that a variant and a reference need to reach the same loss.

The target is the lowest loss that all training runs of the variant and the reference reach. Runs are paired by seed.
Validation losses are made monotone and interpolated in the logarithm of the cost (`layerwise.train.cost.frontier`). If
a training run is below the target at its first evaluation, the cost of that evaluation is an upper bound, without an
interval.

Result rows of the measure `convergence` have the metrics `cost`, `ratio` (of this cost to that of the reference) and
`loss` (the target). Costs are steps or seconds. For fine-tuning, the measure is `tuning_convergence`, with a `score`
per task instead of `loss`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import exp, log
from statistics import fmean

import numpy as np

from layerwise.measure.contrasts.variants import find_share
from layerwise.measure.stats.seeds import SeedDifference, seed_interval
from layerwise.measure.stats.statistics import holm_by_key
from layerwise.results.rows import Score
from layerwise.results.selection import PRESENT, Rows
from layerwise.results.vocabulary import (
    BACKBONE,
    CONVERGENCE,
    LEARNING_CURVE,
    SECONDS,
    STEPS,
    TRAINING,
    TUNING_CONVERGENCE,
)
from layerwise.train.cost.frontier import Censored, Reached, cost_to_loss, descending, log_ratio, ratio_row

COSTS = (STEPS, SECONDS)


@dataclass(frozen=True, slots=True)
class ValidationCurve:
    """Validation losses of one training run in nats/token, by ascending step; `step_seconds` is the time per step."""

    steps: tuple[int, ...]
    losses: tuple[float, ...]
    step_seconds: float | None = None


Curves = Mapping[str, Mapping[int, ValidationCurve]]
"""Validation curves of each variant, by seed."""


def common_target(*variants: Mapping[int, ValidationCurve]) -> float:
    return max(descending(curve.losses)[-1] for variant in variants for curve in variant.values())


def convergence_rows(curves: Curves, reference: str) -> list[Score]:
    """Return the result rows of all variants. If there is no curve of the reference, there are none."""
    if not curves.get(reference):
        return []
    goals = _goals(curves, reference)
    rows = [Score(CONVERGENCE, "loss", goals[reference])]
    rows += [
        Score(CONVERGENCE, "loss", goal, variant=variant, against=reference)
        for variant, goal in goals.items()
        if goal != goals[reference]
    ]
    for cost in COSTS:
        pairs: dict[str, tuple[Spent, Spent]] = {}
        for variant, goal in goals.items():
            own, base = (spent_to(curves[name], cost, goal) for name in (variant, reference))
            if own:
                values = [each.cost for each in own.values()]
                low, high = seed_interval(values) if _are_exact(own) else (None, None)
                rows.append(Score(CONVERGENCE, "cost", float(np.mean(values)), low, high, variant=variant, unit=cost))
                pairs[variant] = own, base
        rows += ratio_rows(pairs, reference, cost)
    return rows


def _goals(curves: Curves, reference: str) -> dict[str, float]:
    return {variant: common_target(of, curves[reference]) for variant, of in curves.items() if of}


Spent = Mapping[int, Reached]


def spent_to(curves: Mapping[int, ValidationCurve], cost: str, target: float) -> Spent:
    """Map each seed to its cost to reach the target. If the cost is `seconds`, seeds without step times are omitted."""
    steps = {seed: cost_to_loss(curve.steps, curve.losses, target) for seed, curve in curves.items()}
    if cost == "steps":
        return steps
    return {
        seed: replace(steps[seed], cost=steps[seed].cost * curve.step_seconds)
        for seed, curve in curves.items()
        if curve.step_seconds is not None
    }


def _are_exact(spent: Spent) -> bool:
    return all(each.censored == "exact" for each in spent.values())


def ratio_rows(spent: Mapping[str, tuple[Spent, Spent]], reference: str, cost: str) -> list[Score]:
    logs: dict[str, SeedDifference] = {}
    for variant, pair in spent.items():
        shared = set(pair[0]) & set(pair[1])
        if variant != reference and shared:
            own, base = ({seed: of[seed] for seed in shared} for of in pair)
            mean = log_ratio(*({seed: each.cost for seed, each in costs.items()} for costs in (own, base)))
            exact = _are_exact(own) and _are_exact(base)
            logs[variant] = mean if exact else SeedDifference(mean.value, mean.seeds)
    adjusted = holm_by_key({variant: each.p for variant, each in logs.items()})
    return [
        ratio_row(
            CONVERGENCE,
            "ratio",
            each,
            p=each.p,
            p_adjusted=adjusted.get(variant),
            variant=variant,
            against=reference,
            unit=cost,
        )
        for variant, each in logs.items()
    ]


def score_curve(points: Mapping[int, float], step_seconds: float | None = None) -> ValidationCurve:
    """Convert scores by step into a validation curve with the loss 1 - score.

    >>> score_curve({1: 0.5, 10: 0.75}).losses
    (0.5, 0.25)
    """
    steps = tuple(sorted(points))
    return ValidationCurve(steps, tuple(1 - points[step] for step in steps), step_seconds)


def tuning_convergence_rows(curves: Mapping[str, Curves], reference: str) -> list[Score]:
    """Return the result rows of each task (a key of `curves`) for which the reference has a curve."""
    rows: list[Score] = []
    compared = {task: variants for task, variants in curves.items() if variants.get(reference)}
    for task, variants in compared.items():
        for row in convergence_rows(variants, reference):
            if row.metric == "loss":
                row = replace(row, metric="score", value=1 - row.value)
            rows.append(replace(row, measure=TUNING_CONVERGENCE, task=task))
    return [*rows, *_over_tasks(compared, reference)] if len(compared) > 1 else rows


def _over_tasks(curves: Mapping[str, Curves], reference: str) -> Iterator[Score]:
    variants = [variant for variant in next(iter(curves.values())) if all(of.get(variant) for of in curves.values())]
    goals = {task: _goals(of, reference) for task, of in curves.items()}
    for cost in COSTS:
        spent: dict[str, tuple[Spent, Spent]] = {}
        for variant in variants:
            own, base = (
                _pooled([spent_to(of[name], cost, goals[task][variant]) for task, of in curves.items()])
                for name in (variant, reference)
            )
            if own and base:
                spent[variant] = own, base
        for row in ratio_rows(spent, reference, cost):
            yield replace(row, measure=TUNING_CONVERGENCE)


def _pooled(tasks: Sequence[Spent]) -> Spent:
    """Return the cost of each seed, as the geometric mean over tasks."""
    seeds = sorted(set.intersection(*(set(of) for of in tasks)))
    means: dict[int, Reached] = {}
    for seed in seeds:
        own = [of[seed] for of in tasks]
        censored: Censored = "exact" if all(each.censored == "exact" for each in own) else "sooner"
        means[seed] = Reached(exp(fmean(log(each.cost) for each in own)), censored)
    return means


def pretraining_convergence(rows: Iterable[Score]) -> list[Score]:
    trained = Rows(rows).where(measure=TRAINING)
    seconds = {(row.variant, row.seed): row.value for row in trained.where(metric="step_seconds")}
    curves: dict[str, dict[int, ValidationCurve]] = {}
    for variant, of in trained.where(metric="validation_loss", step=PRESENT).by("variant").items():
        for seed, noted in of.by("seed").items() if find_share(variant) is None else ():
            losses = {row.step or 0: row.value for row in noted}
            if steps := tuple(sorted(step for step in losses if step > 0)):
                curve = ValidationCurve(steps, tuple(losses[step] for step in steps), seconds.get((variant, seed)))
                curves.setdefault(variant, {})[seed] = curve
    return convergence_rows(curves, BACKBONE) if len(curves) > 1 else []


def fine_tuning_convergence(rows: Iterable[Score]) -> list[Score]:
    learned = Rows(rows).where(measure=LEARNING_CURVE, plan=None)
    seconds = {(row.task, row.variant, row.seed): row.value for row in learned.where(metric="step_seconds")}
    curves: dict[str, dict[str, dict[int, ValidationCurve]]] = {}
    for task, taught in learned.where(step=PRESENT, tuning_seed=0).by("task").items():
        for variant, of in taught.by("variant").items():
            curves.setdefault(task, {})[variant] = {
                seed: score_curve({row.step or 0: row.value for row in points}, seconds.get((task, variant, seed)))
                for seed, points in of.by("seed").items()
            }
    return tuning_convergence_rows(curves, BACKBONE)
