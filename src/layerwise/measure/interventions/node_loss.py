"""What the loss of whole nodes costs, beside that of as many layers one by one and anywhere.

The layers of a model lie on N nodes, in contiguous blocks or round robin. Rows are of measure `nodes`, by arm: `other`
is N, `part` the layout, `amount` how many are lost, `condition` the order of what is left. With a(c) the accuracy under
condition c, on the same examples and in the same orders,

    accuracy_lost                           a(all layers) - a(without the nodes), the mean over nodes that may be lost
    accuracy_lost against single            the sum over the lost layers of a(all layers) - a(without this layer alone)
    accuracy_lost against scattered         a(all layers) - a(as many layers left out at random)
    accuracy_lost_above against single      the first less the second: what layers cost together beyond each alone
    accuracy_lost_above against scattered   the first less the third: whether it counts that the layers lay together
    accuracy_lost_above against blocks      of round robin: less that of blocks
    accuracy_lost_worst                     of one node lost: that whose loss costs most (no interval: it was chosen)

and the same as `nll_added`, of the loss. Where nodes hold unequal numbers of layers nothing is left out at random to
compare with. The examples of a batch share what was drawn, so intervals are over seeds and batches
(`layerwise.measure.contrasts.trainings`), of one seed Student's over batches.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from layerwise.measure.contrasts.shuffled import by_batch
from layerwise.measure.contrasts.trainings import over_trainings
from layerwise.measure.interventions.accuracy import Numbers, Predictions
from layerwise.measure.interventions.survey import Survey, conditions_by_name
from layerwise.measure.stats.grid import FEWEST_UNITS
from layerwise.measure.stats.statistics import student_interval
from layerwise.plan.samplers import LAYOUTS, node_layout
from layerwise.results.rows import Score
from layerwise.results.vocabulary import BLOCKS, NODES, RANDOM_ORDER, SCATTERED, SEQUENTIAL, SINGLE

METRICS = {"accuracy_lost": ("hits", 1.0), "nll_added": ("nll", -1.0)}
"""What is counted of an outcome, and the sign that makes a loss of it."""


@dataclass(frozen=True, slots=True, eq=False)
class PairedCost:
    """What something costs, example by example: `values` (examples,) of those that count, with their labels."""

    values: Numbers
    scored: Numbers

    @property
    def mean(self) -> float:
        """The cost of a scored label."""
        return float(self.values.sum() / self.scored.sum())


PairedCosts = list[PairedCost]
"""One for every seed."""


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
    """The rows of every layout, for so many nodes lost in one order."""
    for metric in METRICS:
        by_layout: dict[str, PairedCosts] = {}
        for layout in LAYOUTS:
            of: dict[str, Any] = {"arm": arm, "part": layout, "other": count, "amount": float(lost), "condition": order}
            together = [cost for survey in surveys if (cost := _together(survey, count, layout, lost, order, metric))]
            if not together or len(together) < len(surveys):
                continue
            by_layout[layout] = together
            yield from _score(metric, together, batch, **of)
            beside = {
                SINGLE: [_single(survey, count, lost, order, metric) for survey in surveys],
                SCATTERED: [_scattered(survey, count, lost, order, metric) for survey in surveys],
                BLOCKS: by_layout[BLOCKS] if layout != BLOCKS and BLOCKS in by_layout else [None],
            }
            for null, costs in beside.items():
                known = [cost for cost in costs if cost is not None]
                if len(known) == len(surveys):
                    if null != BLOCKS:
                        yield from _score(metric, known, batch, **of, against=null)
                    yield from _score(f"{metric}_above", _less(together, known), batch, **of, against=null)
            if lost == 1:
                each = [
                    [
                        _cost(survey, f"nodes {count} {layout} without {node} {order}", order, metric)
                        for survey in surveys
                    ]
                    for node in range(count)
                ]
                means = [np.mean([cost.mean for cost in of if cost is not None]) for of in each]
                yield Score(NODES, f"{metric}_worst", float(np.max(means)), **of)


def _together(survey: Survey, count: int, layout: str, lost: int, order: str, metric: str) -> PairedCost | None:
    """What the loss of nodes costs: the mean over each of them, or over sets that were drawn."""
    if lost > 1:
        return _cost(survey, f"nodes {count} {layout} any {lost} {order}", order, metric)
    each = [_cost(survey, f"nodes {count} {layout} without {node} {order}", order, metric) for node in range(count)]
    return _combined([cost for cost in each if cost is not None], 1 / count) if all(each) else None


def _single(survey: Survey, count: int, lost: int, order: str, metric: str) -> PairedCost | None:
    """What the layers of the lost nodes cost one by one: every layer is on one of the nodes that may be lost."""
    each = [_cost(survey, f"without {layer} {order}", order, metric) for layer in range(survey.depth)]
    return _combined([cost for cost in each if cost is not None], lost / count) if all(each) else None


def _scattered(survey: Survey, count: int, lost: int, order: str, metric: str) -> PairedCost | None:
    """What as many layers cost, left out at random."""
    sizes = {len(node) for node in node_layout(survey.depth, count, BLOCKS)}
    if len(sizes) > 1:
        return None
    return _cost(survey, f"kept {survey.depth - lost * sizes.pop()} random {order}", order, metric)


def _cost(survey: Survey, task: str, order: str, metric: str) -> PairedCost | None:
    """With all layers less under `task`, in the same order; `None` where it was not surveyed."""
    under, whole = survey.outcomes.get(task), survey.outcomes.get(order)
    if under is None or whole is None:
        return None
    field, sign = METRICS[metric]
    counted = (under.scored > 0) & (whole.scored > 0)
    if not counted.any():
        return None
    difference = sign * (_values(whole, field) - _values(under, field))
    return PairedCost(np.where(counted, difference, 0.0), np.where(counted, whole.scored, 0.0))


def _values(outcome: Predictions, field: str) -> Numbers:
    values: Numbers = getattr(outcome, field)
    return values


def _combined(costs: Sequence[PairedCost], factor: float) -> PairedCost:
    """`factor` times the sum of several costs, on the examples that all of them count."""
    counted = np.all([cost.scored > 0 for cost in costs], axis=0)
    total = factor * np.sum([cost.values for cost in costs], axis=0)
    return PairedCost(np.where(counted, total, 0.0), np.where(counted, costs[0].scored, 0.0))


def _less(costs: PairedCosts, others: PairedCosts) -> PairedCosts:
    differences = []
    for cost, other in zip(costs, others, strict=True):
        counted = (cost.scored > 0) & (other.scored > 0)
        differences.append(
            PairedCost(np.where(counted, cost.values - other.values, 0.0), np.where(counted, cost.scored, 0.0))
        )
    return differences


def _score(metric: str, costs: PairedCosts, batch: int, **of: Any) -> Iterator[Score]:
    """The mean over seeds with its interval; nothing where no example is left that all conditions count."""
    if not all(cost.scored.any() for cost in costs):
        return
    documents = int((costs[0].scored > 0).sum())
    means = [cost.mean for cost in costs]
    values, scored = (
        by_batch(np.array([getattr(cost, name) for cost in costs]), batch) for name in ("values", "scored")
    )
    kept = (scored > 0).all(axis=0)
    values, scored = values[:, kept], scored[:, kept]
    low = high = None
    if len(costs) > 1:
        pulls = (values - np.array(means)[:, None] * scored) / scored.sum(axis=1, keepdims=True)
        estimate = over_trainings(means, pulls, documents)
        if estimate.terms:
            low, high = estimate.value - estimate.half, estimate.value + estimate.half
    elif kept.sum() >= FEWEST_UNITS:
        one = student_interval(values, scored[0])
        low, high = float(one.low[0]), float(one.high[0])
    if metric == "accuracy_lost" and of.get("against") != SINGLE and low is not None and high is not None:
        low, high = max(-1.0, low), min(1.0, high)  # a difference of two shares
    yield Score(NODES, metric, float(np.mean(means)), low, high, **of, documents=documents)
