"""From surveys to rows: what each way of training survives, with its interval, its null and its difference to the rest.

An *arm* is one way of training, with one survey a seed. The number of an arm is the mean over its seeds with Student's
interval over them, since another seed is what a reader would run; an arm of one seed has the interval of its examples
(Wilson's for images, Student's over windows for text, of 8 at least). Differences to the baseline are paired: the same
seed, the same examples, the same orders.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from layerwise.measure.interventions.accuracy import Numbers, Predictions
from layerwise.measure.interventions.survey import RANDOM_ORDER, SEQUENTIAL, Survey
from layerwise.measure.stats.grid import FEWEST_UNITS
from layerwise.measure.stats.seeds import over_seeds
from layerwise.measure.stats.statistics import student_interval, wilson
from layerwise.results.rows import Score

ROBUSTNESS = "robustness"
BASELINE = "baseline"
Arms = Mapping[str, Mapping[int, Survey]]
"""From the name of an arm to its surveys by seed."""


Bounded = tuple[float, float | None, float | None]
"""A value with the ends of its interval, where it has one."""


def robustness(arms: Arms, *, chance: float, classes: int, leads: str) -> list[Score]:
    """Every row of measure `robustness`: arms, seeds, and differences to the baseline where there is one.

    `chance` is the share of the commonest label, `leads` the metric that the report shows first.
    """
    depth = max(survey.depth for surveys in arms.values() for survey in surveys.values())
    rows = [
        Score(ROBUSTNESS, "model", "all", "depth", depth),
        Score(ROBUSTNESS, "model", "all", "classes", classes),
        Score(ROBUSTNESS, "model", "all", "accuracy@chance", chance),
        Score(ROBUSTNESS, "model", "all", "leads", float(leads == "accuracy")),
    ]
    for arm, surveys in arms.items():
        for task in _tasks(surveys):
            outcomes = {seed: survey.outcomes[task] for seed, survey in surveys.items() if task in survey.outcomes}
            outcomes = {seed: outcome for seed, outcome in outcomes.items() if outcome.scored.sum() > 0}
            rows += _rows(arm, task, outcomes)
            base = {seed: survey.outcomes.get(task) for seed, survey in arms.get(BASELINE, {}).items()}
            if arm != BASELINE:
                rows += _differences(arm, task, outcomes, {s: o for s, o in base.items() if o is not None})
    return rows


def contribution(arms: Arms) -> list[Score]:
    """Rows of measure `contribution`: what each layer is worth, in order and in random order.

    `accuracy_lost.sequential` is the accuracy with all layers minus that without this one, on the same examples and,
    for `.random`, in the same orders; `nll_added.*` is the loss without it minus that with all. Means over seeds
    with Student's interval over them, for one seed over examples.
    """
    rows = []
    for arm, surveys in arms.items():
        depth = max(survey.depth for survey in surveys.values())
        for order in (SEQUENTIAL, RANDOM_ORDER):
            for layer in range(depth):
                task = f"without {layer} {order}"
                pairs = [
                    (survey.outcomes[order], survey.outcomes[task])
                    for survey in surveys.values()
                    if task in survey.outcomes and survey.outcomes[order].scored.sum() > 0
                ]
                for metric, field, sign in (("accuracy_lost", "hits", 1.0), ("nll_added", "nll", -1.0)):
                    if pairs:
                        value, low, high = paired(pairs, field, sign)
                        count = int((pairs[0][0].scored > 0).sum())
                        rows.append(
                            Score(
                                "contribution", str(layer), arm, f"{metric}.{order}", value, low, high, documents=count
                            )
                        )
    return rows


def orders(arms: Arms) -> list[Score]:
    """Rows of measure `orders`: accuracy and loss of every seed of every arm under each fixed order."""
    return [
        Score("orders", f"{arm}/{seed}", plan, metric, value)
        for arm, surveys in arms.items()
        for seed, survey in surveys.items()
        for plan, pair in survey.orders.items()
        for metric, value in zip(("accuracy", "nll"), pair, strict=True)
    ]


def identity(arms: Arms) -> list[Score]:
    """Rows of measure `identity`: random orders that were the original one, over all seeds of an arm."""
    rows = []
    for arm, surveys in arms.items():
        for task in dict.fromkeys(name for survey in surveys.values() for name in survey.identical):
            draws = [survey.identical[task] for survey in surveys.values() if task in survey.identical]
            rows.append(Score("identity", arm, task, "draws", sum(each.draws for each in draws)))
            rows.append(Score("identity", arm, task, "identical", sum(each.identical for each in draws)))
            shares = [each.accuracy for each in draws if each.accuracy is not None]
            if shares:
                rows.append(Score("identity", arm, task, "accuracy", float(np.mean(shares))))
    return rows


def _tasks(surveys: Mapping[int, Survey]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for survey in surveys.values() for name in survey.outcomes))


def _rows(arm: str, task: str, outcomes: Mapping[int, Predictions]) -> Iterator[Score]:
    """The rows of an arm on one task: every seed by itself, then all of them."""
    each = {seed: dict(metrics(outcome)) for seed, outcome in outcomes.items()}
    for seed, by_metric in each.items():
        for metric, (value, low, high) in by_metric.items():
            yield _score(f"{arm}/{seed}", task, metric, value, low, high, outcomes[seed])
    if not each:
        return
    first = next(iter(outcomes))
    for metric in each[first]:
        values = [by_metric[metric][0] for by_metric in each.values()]
        low, high = over_seeds(values, metric, [by_metric[metric][1:] for by_metric in each.values()])
        yield _score(arm, task, metric, float(np.mean(values)), low, high, outcomes[first])
        if len(values) > 1 and task in (SEQUENTIAL, RANDOM_ORDER):
            # The papers print the standard deviation over trainings.
            yield Score(ROBUSTNESS, arm, task, f"{metric}@spread", float(np.std(values, ddof=1)))


def metrics(outcome: Predictions) -> Iterator[tuple[str, Bounded]]:
    """Each metric of one outcome with the interval over its examples."""
    counted = outcome.scored > 0
    scored = outcome.scored[counted]
    yield "accuracy", _share(outcome.hits[counted], scored)
    if outcome.hits_top5 is not None:
        yield "accuracy_top5", _share(outcome.hits_top5[counted], scored)
    yield "nll", _student(outcome.nll[counted], scored)


def _share(hits: Numbers, scored: Numbers) -> Bounded:
    # One label an example: a proportion. Several: they err together, so examples are the units.
    if (scored != 1).any():
        return _student(hits, scored)
    estimate = wilson(hits.sum(), len(hits))
    value, low, high = (float(part) for part in (estimate.value, estimate.low, estimate.high))
    return value, low, high


def _student(values: Numbers, scored: Numbers) -> Bounded:
    """The mean per scored label, with Student's interval over the examples where there are enough."""
    if scored.size < FEWEST_UNITS:
        return float(values.sum() / scored.sum()), None, None
    estimate = student_interval(values[None], scored)
    return float(estimate.value[0]), float(estimate.low[0]), float(estimate.high[0])


def _differences(
    arm: str, task: str, outcomes: Mapping[int, Predictions], base: Mapping[int, Predictions]
) -> Iterator[Score]:
    """What an arm does better than the baseline, seed by seed on the same examples."""
    pairs = [(outcomes[seed], base[seed]) for seed in outcomes if seed in base and base[seed].scored.sum() > 0]
    if not pairs:
        return
    for metric, field in (("accuracy", "hits"), ("nll", "nll")):
        yield _score(arm, task, f"{metric}_above@{BASELINE}", *paired(pairs, field), pairs[0][0])


def paired(pairs: Sequence[tuple[Predictions, Predictions]], field: str, sign: float = 1.0) -> Bounded:
    """`sign` times one minus other, per scored label: the mean over pairs, and its interval.

    The interval is over pairs (seeds) and their examples (`over_seeds`).
    """
    each = []
    for one, other in pairs:
        counted = one.scored > 0
        gap = sign * (getattr(one, field) - getattr(other, field))
        each.append(_student(gap[counted], one.scored[counted]))
    values = [value for value, _, _ in each]
    return float(np.mean(values)), *over_seeds(values, "", [(low, high) for _, low, high in each])


def _score(
    subject: str, task: str, metric: str, value: float, low: float | None, high: float | None, outcome: Predictions
) -> Score:
    examples, labels = int((outcome.scored > 0).sum()), int(outcome.scored.sum())
    return Score(ROBUSTNESS, subject, task, metric, value, low, high, documents=examples, tokens=labels)
