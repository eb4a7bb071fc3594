"""Robustness of training variants: rows of their surveys, with intervals and differences from the baseline.

Means over seeds have intervals over the seeds and the units that the seeds share. A unit is an example, or a batch if
each batch has a random plan, which is the same for all seeds. Differences are paired. Intervals need at least 8 units.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from layerwise.measure.contrasts.trainings import average_scored
from layerwise.measure.interventions.accuracy import Numbers, Predictions
from layerwise.measure.interventions.survey import Survey, conditions_by_name
from layerwise.measure.stats.estimate import Bounded
from layerwise.measure.stats.seeds import Bounds, seed_interval
from layerwise.measure.stats.statistics import paired_proportions, wilson
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

Surveys = Mapping[str, Mapping[int, Survey]]


def robustness_rows(variants: Surveys, *, chance: float, classes: int, leads: str, batch: int) -> list[Score]:
    """Return the rows of measure `robustness`, with differences from the baseline if there is one.

    `variants` has a survey for each variant and seed, and `chance` is the fraction of the most frequent label. The
    report shows the metric `leads` first. `batch` examples run under the same random plan.
    """
    depth = max(survey.depth for surveys in variants.values() for survey in surveys.values())
    rows = [
        Score(ROBUSTNESS, "depth", depth),
        Score(ROBUSTNESS, "classes", classes),
        Score(ROBUSTNESS, "accuracy", chance, against=CHANCE),
        Score(ROBUSTNESS, "leads", float(leads == "accuracy")),
    ]
    for variant, surveys in variants.items():
        for name in dict.fromkeys(name for survey in surveys.values() for name in survey.outcomes):
            condition = conditions_by_name(depth)[name]
            of, size = {"variant": variant, **condition.columns(depth)}, batch if condition.is_drawn else 1
            outcomes = {seed: survey.outcomes[name] for seed, survey in surveys.items() if name in survey.outcomes}
            outcomes = {seed: outcome for seed, outcome in outcomes.items() if outcome.scored.sum() > 0}
            rows += _condition_rows(of, outcomes, size, spread=name in (SEQUENTIAL, RANDOM_ORDER))
            if variant != BASELINE:
                surveyed = variants.get(BASELINE, {}).items()
                base = {seed: survey.outcomes[name] for seed, survey in surveyed if name in survey.outcomes}
                rows += _difference_rows(of, outcomes, base, size)
    return rows


def contribution_rows(variants: Surveys, batch: int) -> list[Score]:
    """Return rows of measure `contribution`: the importance of each layer, in sequential and in random order.

    `accuracy_lost` is the decrease in accuracy and `nll_added` the increase in loss when the layer is skipped. Both are
    paired over the same examples and orders; `batch` examples share a random order.
    """
    rows = []
    for variant, surveys in variants.items():
        depth = max(survey.depth for survey in surveys.values())
        for order, size in ((SEQUENTIAL, 1), (RANDOM_ORDER, batch)):
            for layer in range(depth):
                without = f"without {layer} {order}"
                pairs = [
                    (survey.outcomes[order], survey.outcomes[without])
                    for survey in surveys.values()
                    if without in survey.outcomes and survey.outcomes[order].scored.sum() > 0
                ]
                if not pairs:
                    continue
                count = int((pairs[0][0].scored > 0).sum())
                of: dict[str, Any] = {"variant": variant, "layer": layer, "order": order, "documents": count}
                for metric, field, sign in (("accuracy_lost", "hits", 1.0), ("nll_added", "nll", -1.0)):
                    rows.append(Score(CONTRIBUTION, metric, *paired_difference(pairs, field, sign, size), **of))
    return rows


def order_rows(variants: Surveys) -> list[Score]:
    return [
        Score(ORDERS, metric, value, variant=variant, seed=seed, plan=plan)
        for variant, surveys in variants.items()
        for seed, survey in surveys.items()
        for plan, pair in survey.orders.items()
        for metric, value in zip(("accuracy", "nll"), pair, strict=True)
    ]


def identity_rows(variants: Surveys) -> list[Score]:
    rows = []
    for variant, surveys in variants.items():
        depth = max(survey.depth for survey in surveys.values())
        for name in dict.fromkeys(name for survey in surveys.values() for name in survey.identical):
            of = {"variant": variant, **conditions_by_name(depth)[name].columns(depth)}
            draws = [survey.identical[name] for survey in surveys.values() if name in survey.identical]
            rows.append(Score(IDENTITY, "draws", sum(each.draws for each in draws), **of))
            rows.append(Score(IDENTITY, "identical", sum(each.identical for each in draws), **of))
            shares = [each.accuracy for each in draws if each.accuracy is not None]
            if shares:
                rows.append(Score(IDENTITY, "accuracy", float(np.mean(shares)), **of))
    return rows


def _condition_rows(
    of: Mapping[str, Any], outcomes: Mapping[int, Predictions], batch: int, *, spread: bool
) -> Iterator[Score]:
    each = {seed: dict(estimate_metrics([outcome], batch)) for seed, outcome in outcomes.items()}
    for seed, by_metric in each.items():
        for metric, bounded in by_metric.items():
            yield _score(metric, bounded, outcomes[seed], **of, seed=seed)
    if not each:
        return
    first = next(iter(outcomes))
    for metric, bounded in estimate_metrics(list(outcomes.values()), batch):
        yield _score(metric, bounded, outcomes[first], **of)
        if spread and len(each) > 1:
            # Papers report the standard deviation over seeds.
            values = [by_metric[metric][0] for by_metric in each.values()]
            yield Score(ROBUSTNESS, f"{metric}_spread", float(np.std(values, ddof=1)), **of)


def estimate_metrics(models: Sequence[Predictions], batch: int = 1) -> Iterator[tuple[str, Bounded]]:
    """Yield each metric as the mean over models, with an interval over models and over the units that they share.

    A unit consists of `batch` examples, which ran under the same random plan (default: one example).
    """
    scored = np.array([model.scored for model in models])
    yield "accuracy", _mean("accuracy", np.array([model.hits for model in models]), scored, batch)
    top5 = [model.hits_top5 for model in models if model.hits_top5 is not None]
    if len(top5) == len(models):
        yield "accuracy_top5", _mean("accuracy_top5", np.array(top5), scored, batch)
    yield "nll", _mean("nll", np.array([model.nll for model in models]), scored, batch)


def _mean(metric: str, values: Numbers, scored: Numbers, batch: int) -> Bounded:
    if metric == "nll" or (scored > 1).any():
        return average_scored(values, scored, batch, metric)
    closed = [_closed_form(metric, hits[counted]) for hits, counted in zip(values, scored > 0, strict=True)]
    over_orders = average_scored(values, scored, batch, metric)
    if batch == 1:
        return over_orders[0], *_over_models(metric, closed)
    return wider_interval(metric, closed, over_orders)


def wider_interval(metric: str, closed: Sequence[Bounded], over_orders: Bounded) -> Bounded:
    """Return a mean with the union of two intervals: one over orders, and one over models.

    The latter is computed from the closed-form interval of each model (`closed`), such as Wilson's, whose width is
    positive even if all answers agree.
    """
    value, low, high = over_orders
    least, most = _over_models(metric, closed)
    if low is None or high is None or least is None or most is None:
        return value, None, None
    return value, min(low, least), max(high, most)


def _over_models(metric: str, closed: Sequence[Bounded]) -> Bounds:
    return seed_interval([share for share, *_ in closed], metric, [(low, high) for _, low, high in closed])


def _closed_form(metric: str, hits: Numbers) -> tuple[float, float, float]:
    if metric.endswith("_above"):
        return paired_proportions(np.maximum(hits, 0.0).sum(), np.maximum(-hits, 0.0).sum(), hits.size).row()
    return wilson(hits.sum(), hits.size).row()


def _difference_rows(
    of: Mapping[str, Any], outcomes: Mapping[int, Predictions], base: Mapping[int, Predictions], batch: int
) -> Iterator[Score]:
    pairs = [(outcomes[seed], base[seed]) for seed in outcomes if seed in base and base[seed].scored.sum() > 0]
    if not pairs:
        return
    for metric, field in (("accuracy", "hits"), ("nll", "nll")):
        gap = paired_difference(pairs, field, batch=batch)
        yield _score(f"{metric}_above", gap, pairs[0][0], **of, against=BASELINE)


def paired_difference(
    pairs: Sequence[tuple[Predictions, Predictions]], field: str, sign: float = 1.0, batch: int = 1
) -> Bounded:
    """Average `sign` times the difference in `field` per scored label over all pairs, with its interval."""
    scored = np.array([one.scored * (other.scored > 0) for one, other in pairs])
    gaps = np.array([sign * (getattr(one, field) - getattr(other, field)) for one, other in pairs]) * (scored > 0)
    return _mean("accuracy_above" if field == "hits" else "nll", gaps, scored, batch)


def _score(metric: str, bounded: Bounded, outcome: Predictions, **of: Any) -> Score:
    examples, labels = int((outcome.scored > 0).sum()), int(outcome.scored.sum())
    return Score(ROBUSTNESS, metric, *bounded, **of, documents=examples, tokens=labels)
