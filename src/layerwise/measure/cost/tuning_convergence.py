"""How soon fine-tuning reaches a score: steps and seconds on each task, over seeds, against a reference arm.

The learning curve of a fine-tuning is read as that of a pretraining is (`layerwise.measure.cost.convergence`), with
1 - score in place of the loss: scores made monotone, between two points a line in the logarithm of the cost, and a
training that never reaches the score counts with all that it spent, as a bound. The score is by default the highest
that every training of the reference reaches, and the same for all seeds and arms of a task. Rows of measure
`tuning_convergence`, of a task, their condition `steps` or `seconds`:

    cost       the mean over seeds, Student's interval
    censored   the share of seeds that never reached the score, where there is one
    ratio      as in `convergence`: against another arm, paired by seed, Holm over arms
    score      of no arm: the score itself

and, of two tasks and more, a `ratio` of the task `all`: in each seed the geometric mean of the costs over tasks, so
that every task counts alike.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import exp, log
from statistics import fmean

from layerwise.measure.cost.convergence import (
    COSTS,
    Curves,
    Spent,
    ValidationCurve,
    common_target,
    convergence_rows,
    ratio_rows,
    spent_to,
)
from layerwise.measure.cost.cost_to_loss import Censored, Reached
from layerwise.results.rows import Score
from layerwise.results.vocabulary import TUNING_CONVERGENCE


def score_curve(points: Mapping[int, float], step_seconds: float | None = None) -> ValidationCurve:
    """The curve of `points`, step to score, as one that comes down: 1 - score.

    >>> score_curve({1: 0.5, 10: 0.75}).losses
    (0.5, 0.25)
    """
    steps = tuple(sorted(points))
    return ValidationCurve(steps, tuple(1 - points[step] for step in steps), step_seconds)


def tuning_convergence_rows(curves: Mapping[str, Curves], reference: str, target: float | None = None) -> list[Score]:
    """The rows of all tasks, of the curves by task, arm and seed; none of a task that the reference has no curve of."""
    rows: list[Score] = []
    targets: dict[str, float] = {}
    for task, arms in curves.items():
        if not arms.get(reference):
            continue
        targets[task] = common_target(arms[reference]) if target is None else 1 - target
        for row in convergence_rows(arms, reference, targets[task]):
            if row.metric == "loss":
                rows.append(Score(TUNING_CONVERGENCE, "score", 1 - row.value, task=task))
            else:
                rows.append(replace(row, measure=TUNING_CONVERGENCE, task=task))
    return [*rows, *_over_tasks(curves, reference, targets)] if len(targets) > 1 else rows


def _over_tasks(curves: Mapping[str, Curves], reference: str, targets: Mapping[str, float]) -> Iterator[Score]:
    """The ratios of the costs of all tasks together, of the arms that were taught all of them."""
    arms = list(dict.fromkeys(arm for of in curves.values() for arm in of))
    for cost in COSTS:
        spent: dict[str, Spent] = {}
        for arm in arms:
            of = [spent_to(curves[task].get(arm, {}), cost, score) for task, score in targets.items()]
            pooled = _pooled(of)
            if pooled:
                spent[arm] = pooled
        if reference in spent:
            for row in ratio_rows(spent, reference, cost):
                yield replace(row, measure=TUNING_CONVERGENCE)


def _pooled(tasks: Sequence[Spent]) -> Spent:
    """The geometric mean over tasks for each seed that has all of them; a bound where one of them is."""
    seeds = sorted(set.intersection(*(set(of) for of in tasks)))
    return {seed: _geometric_mean([of[seed] for of in tasks]) for seed in seeds}


def _geometric_mean(costs: Sequence[Reached]) -> Reached:
    kinds = {each.censored for each in costs}
    censored: Censored = "never" if "never" in kinds else "sooner" if "sooner" in kinds else "exact"
    return Reached(exp(fmean(log(each.cost) for each in costs)), censored)
