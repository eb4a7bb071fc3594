"""Compute the cost of losing whole nodes, compared with losing as many layers one by one and at random.

By arm, number of nodes, layout, nodes lost, and order. With a(c) the
accuracy under condition c on the same examples and orders:
    accuracy_lost                    a(all layers) - a(without the nodes); against `single` and `scattered` the cost of
                                     the layers one by one, and of as many random layers
    accuracy_lost_above              the first minus that of `single`, `scattered`, or (round robin) `blocks`
    accuracy_lost_worst              the most costly single node, without interval; `nll_added...` likewise
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from layerwise.measure.contrasts.trainings import mean_over_trainings
from layerwise.measure.interventions.accuracy import Numbers
from layerwise.measure.interventions.survey import Survey, conditions_by_name
from layerwise.plan.samplers import LAYOUTS, node_layout
from layerwise.results.rows import Score
from layerwise.results.vocabulary import BLOCKS, NODES, RANDOM_ORDER, SCATTERED, SEQUENTIAL, SINGLE

METRICS = {"accuracy_lost": ("hits", 1.0), "nll_added": ("nll", -1.0)}
"""What is counted of an outcome, and the sign that makes a loss of it."""


PairedCosts = list[Numbers]
"""For every seed what something costs, example by example; not a number where a condition does not count it."""


def node_loss(arms: Mapping[str, Mapping[int, Survey]], batch: int) -> list[Score]:
    """Every row of measure `nodes` that the surveys allow; `batch` is how many examples ran under one plan."""
    rows: list[Score] = []
    for arm, surveys in arms.items():
        several = list(surveys.values())
        known = (conditions_by_name(survey.depth).get(name) for survey in several for name in survey.outcomes)
        counts = {each.nodes.count for each in known if each is not None and each.nodes is not None}
        for count in sorted(counts):
            for order in (SEQUENTIAL, RANDOM_ORDER):
                for lost in range(1, count):
                    rows += _rows(arm, several, count, lost, order, batch)
    return rows


def _rows(arm: str, surveys: Sequence[Survey], count: int, lost: int, order: str, batch: int) -> Iterator[Score]:
    labels = [survey.outcomes[SEQUENTIAL].scored for survey in surveys]
    for metric in METRICS:
        by_layout: dict[str, PairedCosts] = {}
        for layout in LAYOUTS:
            of: dict[str, Any] = {"arm": arm, "layout": layout, "nodes": count, "lost": lost, "order": order}
            each_seed = [_together(survey, count, layout, lost, order, metric) for survey in surveys]
            together = [cost for cost in each_seed if cost is not None]
            if not together or len(together) < len(surveys):
                continue
            by_layout[layout] = together
            yield from _score(metric, together, labels, batch, **of)
            beside = {
                SINGLE: [_single(survey, count, lost, order, metric) for survey in surveys],
                SCATTERED: [_scattered(survey, count, lost, order, metric) for survey in surveys],
                BLOCKS: by_layout[BLOCKS] if layout != BLOCKS and BLOCKS in by_layout else [None],
            }
            for null, costs in beside.items():
                known = [cost for cost in costs if cost is not None]
                if len(known) == len(surveys):
                    if null != BLOCKS:
                        yield from _score(metric, known, labels, batch, **of, against=null)
                    above = [cost - other for cost, other in zip(together, known, strict=True)]
                    yield from _score(f"{metric}_above", above, labels, batch, **of, against=null)
            if lost == 1:
                means = []
                for node in range(count):
                    task = f"nodes {count} {layout} without {node} {order}"
                    costs = [_cost(survey, task, order, metric) for survey in surveys]
                    pairs = zip(costs, labels, strict=True)
                    means.append(np.mean([_mean(cost, own) for cost, own in pairs if cost is not None]))
                yield Score(NODES, f"{metric}_worst", float(np.max(means)), **of)


def _together(survey: Survey, count: int, layout: str, lost: int, order: str, metric: str) -> Numbers | None:
    if lost > 1:
        return _cost(survey, f"nodes {count} {layout} any {lost} {order}", order, metric)
    each = [_cost(survey, f"nodes {count} {layout} without {node} {order}", order, metric) for node in range(count)]
    return _sum(each, 1 / count)


def _single(survey: Survey, count: int, lost: int, order: str, metric: str) -> Numbers | None:
    each = [_cost(survey, f"without {layer} {order}", order, metric) for layer in range(survey.depth)]
    return _sum(each, lost / count)


def _scattered(survey: Survey, count: int, lost: int, order: str, metric: str) -> Numbers | None:
    sizes = {len(node) for node in node_layout(survey.depth, count, BLOCKS)}
    if len(sizes) > 1:
        return None
    return _cost(survey, f"kept {survey.depth - lost * sizes.pop()} random {order}", order, metric)


def _cost(survey: Survey, task: str, order: str, metric: str) -> Numbers | None:
    under, whole = survey.outcomes.get(task), survey.outcomes.get(order)
    if under is None or whole is None:
        return None
    field, sign = METRICS[metric]
    counted = (under.scored > 0) & (whole.scored > 0)
    if not counted.any():
        return None
    values: Numbers = sign * (getattr(whole, field) - getattr(under, field))
    return np.where(counted, values, np.nan)


def _sum(costs: Sequence[Numbers | None], factor: float) -> Numbers | None:
    known = [cost for cost in costs if cost is not None]
    return factor * np.sum(known, axis=0) if len(known) == len(costs) else None


def _mean(cost: Numbers, labels: Numbers) -> float:
    counted = ~np.isnan(cost)
    return float(np.where(counted, cost, 0.0).sum() / np.where(counted, labels, 0.0).sum())


def _score(metric: str, costs: PairedCosts, labels: Sequence[Numbers], batch: int, **of: Any) -> Iterator[Score]:
    counted = ~np.isnan(costs)
    if not counted.any(axis=1).all():
        return
    values, scored = (np.where(counted, of_examples, 0.0) for of_examples in (costs, labels))
    value, low, high = mean_over_trainings(values, scored, batch, metric if of.get("against") != SINGLE else "")
    yield Score(NODES, metric, value, low, high, **of, documents=int(counted[0].sum()))
