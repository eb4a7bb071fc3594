"""Turn surveys into rows: how each training variant copes, with its interval, null and difference to the baseline.

An *arm* is a variant with one survey per seed: the mean over seeds with Student's interval, or for one seed the
interval over examples (Wilson's for images, Student's over at least 8 windows for text). Differences are paired.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from layerwise.measure.interventions.accuracy import Numbers, Predictions
from layerwise.measure.interventions.survey import Survey, conditions_by_name
from layerwise.measure.stats.grid import FEWEST_UNITS
from layerwise.measure.stats.seeds import over_seeds
from layerwise.measure.stats.statistics import mean_of, wilson
from layerwise.results.rows import Score
from layerwise.results.vocabulary import (
    BASELINE,
    CHANCE,
    CONTRIBUTION,
    IDENTITY,
    ORDERS,
    RANDOM_ORDER,
    ROBUSTNESS,
    SEQUENTIAL,
)

Arms = Mapping[str, Mapping[int, Survey]]
"""From the name of an arm to its surveys by seed."""


Bounded = tuple[float, float | None, float | None]
"""A value with the ends of its interval, where it has one."""


def robustness(arms: Arms, *, chance: float, classes: int, leads: str) -> list[Score]:
    """Return every row of measure `robustness`, with differences to the baseline if there is one.

    `chance` is the share of the commonest label, `leads` the metric that the report shows first.
    """
    depth = max(survey.depth for surveys in arms.values() for survey in surveys.values())
    rows = [
        Score(ROBUSTNESS, "depth", depth),
        Score(ROBUSTNESS, "classes", classes),
        Score(ROBUSTNESS, "accuracy", chance, against=CHANCE),
        Score(ROBUSTNESS, "leads", float(leads == "accuracy")),
    ]
    for arm, surveys in arms.items():
        for name in dict.fromkeys(name for survey in surveys.values() for name in survey.outcomes):
            of = {"arm": arm, **conditions_by_name(depth)[name].columns(depth)}
            outcomes = {seed: survey.outcomes[name] for seed, survey in surveys.items() if name in survey.outcomes}
            outcomes = {seed: outcome for seed, outcome in outcomes.items() if outcome.scored.sum() > 0}
            rows += _rows(of, outcomes, spread=name in (SEQUENTIAL, RANDOM_ORDER))
            base = {seed: survey.outcomes.get(name) for seed, survey in arms.get(BASELINE, {}).items()}
            if arm != BASELINE:
                rows += _differences(of, outcomes, {s: o for s, o in base.items() if o is not None})
    return rows


def contribution(arms: Arms) -> list[Score]:
    """Return rows of measure `contribution`: the importance of each layer, in order and in random order.

    `accuracy_lost` (with all layers minus without this one) and `nll_added` (without minus with) are on the same
    examples and orders, as means over seeds with Student's interval over them (over examples for one seed).
    """
    rows = []
    for arm, surveys in arms.items():
        depth = max(survey.depth for survey in surveys.values())
        for order in (SEQUENTIAL, RANDOM_ORDER):
            for layer in range(depth):
                without = f"without {layer} {order}"
                pairs = [
                    (survey.outcomes[order], survey.outcomes[without])
                    for survey in surveys.values()
                    if without in survey.outcomes and survey.outcomes[order].scored.sum() > 0
                ]
                for metric, field, sign in (("accuracy_lost", "hits", 1.0), ("nll_added", "nll", -1.0)):
                    if pairs:
                        of: dict[str, Any] = {"arm": arm, "layer": layer, "condition": order}
                        count = int((pairs[0][0].scored > 0).sum())
                        rows.append(Score(CONTRIBUTION, metric, *paired(pairs, field, sign), **of, documents=count))
    return rows


def orders(arms: Arms) -> list[Score]:
    """Rows of measure `orders`: accuracy and loss of every seed of every arm under each fixed order."""
    return [
        Score(ORDERS, metric, value, arm=arm, seed=seed, plan=plan)
        for arm, surveys in arms.items()
        for seed, survey in surveys.items()
        for plan, pair in survey.orders.items()
        for metric, value in zip(("accuracy", "nll"), pair, strict=True)
    ]


def identity(arms: Arms) -> list[Score]:
    """Rows of measure `identity`: random orders that were the original one, over all seeds of an arm."""
    rows = []
    for arm, surveys in arms.items():
        depth = max(survey.depth for survey in surveys.values())
        for name in dict.fromkeys(name for survey in surveys.values() for name in survey.identical):
            of = {"arm": arm, **conditions_by_name(depth)[name].columns(depth)}
            draws = [survey.identical[name] for survey in surveys.values() if name in survey.identical]
            rows.append(Score(IDENTITY, "draws", sum(each.draws for each in draws), **of))
            rows.append(Score(IDENTITY, "identical", sum(each.identical for each in draws), **of))
            shares = [each.accuracy for each in draws if each.accuracy is not None]
            if shares:
                rows.append(Score(IDENTITY, "accuracy", float(np.mean(shares)), **of))
    return rows


def _rows(of: Mapping[str, Any], outcomes: Mapping[int, Predictions], *, spread: bool) -> Iterator[Score]:
    each = {seed: dict(metrics(outcome)) for seed, outcome in outcomes.items()}
    for seed, by_metric in each.items():
        for metric, bounded in by_metric.items():
            yield _score(metric, bounded, outcomes[seed], **of, seed=seed)
    if not each:
        return
    first = next(iter(outcomes))
    for metric in each[first]:
        values = [by_metric[metric][0] for by_metric in each.values()]
        low, high = over_seeds(values, metric, [by_metric[metric][1:] for by_metric in each.values()])
        yield _score(metric, (float(np.mean(values)), low, high), outcomes[first], **of)
        if spread and len(values) > 1:
            # The papers print the standard deviation over trainings.
            yield Score(ROBUSTNESS, f"{metric}_spread", float(np.std(values, ddof=1)), **of)


def metrics(outcome: Predictions) -> Iterator[tuple[str, Bounded]]:
    """Each metric of one outcome with the interval over its examples."""
    counted = outcome.scored > 0
    scored = outcome.scored[counted]
    yield "accuracy", _share(outcome.hits[counted], scored)
    if outcome.hits_top5 is not None:
        yield "accuracy_top5", _share(outcome.hits_top5[counted], scored)
    yield "nll", mean_of(outcome.nll[counted], scored, FEWEST_UNITS)


def _share(hits: Numbers, scored: Numbers) -> Bounded:
    # One label an example: a proportion. Several: they err together, so examples are the units.
    if (scored != 1).any():
        value, low, high = mean_of(hits, scored, FEWEST_UNITS)
        return value, None if low is None else max(0.0, low), None if high is None else min(1.0, high)
    return wilson(hits.sum(), len(hits)).row()


def _differences(
    of: Mapping[str, Any], outcomes: Mapping[int, Predictions], base: Mapping[int, Predictions]
) -> Iterator[Score]:
    pairs = [(outcomes[seed], base[seed]) for seed in outcomes if seed in base and base[seed].scored.sum() > 0]
    if not pairs:
        return
    for metric, field in (("accuracy", "hits"), ("nll", "nll")):
        yield _score(f"{metric}_above", paired(pairs, field), pairs[0][0], **of, against=BASELINE)


def paired(pairs: Sequence[tuple[Predictions, Predictions]], field: str, sign: float = 1.0) -> Bounded:
    """Return `sign` times one minus other, per scored label, averaged over pairs, with an interval (`over_seeds`).

    The interval of a difference of shares (`hits`) ends at -1 and 1.
    """
    each = []
    for one, other in pairs:
        counted = one.scored > 0
        gap = sign * (getattr(one, field) - getattr(other, field))
        each.append(mean_of(gap[counted], one.scored[counted], FEWEST_UNITS))
    values = [value for value, _, _ in each]
    return float(np.mean(values)), *over_seeds(
        values, "accuracy_above" if field == "hits" else "", [(low, high) for _, low, high in each]
    )


def _score(metric: str, bounded: Bounded, outcome: Predictions, **of: Any) -> Score:
    examples, labels = int((outcome.scored > 0).sum()), int(outcome.scored.sum())
    return Score(ROBUSTNESS, metric, *bounded, **of, documents=examples, tokens=labels)
