"""Compute what failed nodes cost, and compare it with two baselines and with another layout.

The baselines are skipping the layers of the nodes one at a time (`single`), and skipping as many random layers
(`scattered`). For each variant, number of nodes, layout, number of failed nodes and order, the metrics are:

    accuracy_lost          accuracy with all layers minus accuracy without the failed nodes, on the same examples and
                           orders; if `against` names a baseline, the same for the baseline
    accuracy_lost_above    accuracy_lost minus that of a baseline; for the layout round robin, minus that of `blocks`
    accuracy_lost_worst    accuracy_lost of the single node that costs most, without an interval

`nll_added`, `nll_added_above` and `nll_added_worst` are the same for the loss.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from layerwise.measure.contrasts.trainings import average_scored
from layerwise.measure.interventions.accuracy import Numbers
from layerwise.measure.interventions.survey import Survey, conditions_by_name
from layerwise.plan.samplers import LAYOUTS, node_layout
from layerwise.results.rows import Score
from layerwise.results.vocabulary import BLOCKS, NODES, RANDOM_ORDER, SCATTERED, SEQUENTIAL, SINGLE

METRICS = {"accuracy_lost": ("hits", 1.0), "nll_added": ("nll", -1.0)}
"""For each metric, a field of an outcome, and its sign: 1.0 if a decrease of the field is a cost, otherwise -1.0."""

PairedCosts = list[Numbers]
"""Cost of every example for each seed. It is NaN if the example is not scored under a condition."""


def node_loss_rows(variants: Mapping[str, Mapping[int, Survey]], batch: int) -> list[Score]:
    """Return the rows of measure `nodes`. `batch` is the number of examples that share a random order."""
    rows: list[Score] = []
    for variant, by_seed in variants.items():
        surveys = list(by_seed.values())
        conditions = conditions_by_name(surveys[0].depth)
        surveyed = (conditions.get(name) for survey in surveys for name in survey.outcomes)
        counts = {each.nodes.count for each in surveyed if each is not None and each.nodes is not None}
        for count in sorted(counts):
            for order in (SEQUENTIAL, RANDOM_ORDER):
                for lost in range(1, count):
                    rows += _rows(variant, surveys, count, lost, order, batch)
    return rows


def _rows(variant: str, surveys: Sequence[Survey], count: int, lost: int, order: str, batch: int) -> Iterator[Score]:
    labels, depth = [survey.outcomes[SEQUENTIAL].scored for survey in surveys], surveys[0].depth
    singles = [f"without {layer} {order}" for layer in range(depth)]
    sizes = {len(node) for node in node_layout(depth, count, BLOCKS)}
    scattered = [f"kept {depth - lost * size} random {order}" for size in sizes]
    for metric in METRICS:
        blocks: PairedCosts | None = None
        for layout in LAYOUTS:
            columns: dict[str, Any] = {
                "variant": variant,
                "layout": layout,
                "nodes": count,
                "failed": lost,
                "order": order,
            }
            nodes = [f"nodes {count} {layout} without {node} {order}" for node in range(count)]
            tasks = nodes if lost == 1 else [f"nodes {count} {layout} any {lost} {order}"]
            together = _costs(surveys, tasks, order, metric, 1 / len(tasks))
            if together is None:
                continue
            yield from _score(metric, together, labels, batch, **columns)
            references = {
                SINGLE: _costs(surveys, singles, order, metric, lost / count),
                SCATTERED: None if len(sizes) > 1 else _costs(surveys, scattered, order, metric),
                BLOCKS: blocks,
            }
            for null, costs in references.items():
                if costs is None:
                    continue
                if null != BLOCKS:
                    yield from _score(metric, costs, labels, batch, **columns, against=null)
                above = [cost - other for cost, other in zip(together, costs, strict=True)]
                yield from _score(f"{metric}_above", above, labels, batch, **columns, against=null)
            if layout == BLOCKS:
                blocks = together
            if lost == 1:
                means = []
                for node in nodes:
                    costs = _costs(surveys, [node], order, metric)
                    means.append(np.mean([_mean(*pair) for pair in zip(costs or [], labels, strict=True)]))
                yield Score(NODES, f"{metric}_worst", float(np.max(means)), **columns)


def _costs(
    surveys: Sequence[Survey], tasks: Sequence[str], order: str, metric: str, factor: float = 1.0
) -> PairedCosts | None:
    costs = []
    for survey in surveys:
        each = [cost for task in tasks if (cost := _cost(survey, task, order, metric)) is not None]
        if len(each) < len(tasks):
            return None
        costs.append(factor * np.sum(each, axis=0))
    return costs


def _cost(survey: Survey, task: str, order: str, metric: str) -> Numbers | None:
    under, full = survey.outcomes.get(task), survey.outcomes.get(order)
    if under is None or full is None:
        return None
    field, sign = METRICS[metric]
    counted = (under.scored > 0) & (full.scored > 0)
    if not counted.any():
        return None
    values: Numbers = sign * (getattr(full, field) - getattr(under, field))
    return np.where(counted, values, np.nan)


def _mean(cost: Numbers, labels: Numbers) -> float:
    counted = ~np.isnan(cost)
    return float(np.where(counted, cost, 0.0).sum() / np.where(counted, labels, 0.0).sum())


def _score(metric: str, costs: PairedCosts, labels: Sequence[Numbers], batch: int, **columns: Any) -> Iterator[Score]:
    counted = ~np.isnan(costs)
    if not counted.any(axis=1).all():
        return
    values, scored = (np.where(counted, of_examples, 0.0) for of_examples in (costs, labels))
    value, low, high = average_scored(values, scored, batch, metric if columns.get("against") != SINGLE else "")
    yield Score(NODES, metric, value, low, high, **columns, documents=int(counted[0].sum()))
