"""Compute the rows of `layerwise heal`: the loss increase of a plan, and the share that healing recovers.

L is the loss in nats/token of the original model W, the pruned model P, the healed model H, or the control C, which is
the original model trained on the same tokens with the same seed:

    lost = L(P) - L(W)      regained = L(P) - L(H)      net = regained - (L(W) - L(C))      share = net / lost

The interval of `lost` is over documents; all others are over seeds and documents, with tasks as strata. Benchmarks have
an `accuracy` with Wilson's interval, and a paired `difference` to W and to C.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np

from layerwise.measure.contrasts.trainings import LinearEstimate, average_linear
from layerwise.measure.interventions.survey import Survey
from layerwise.measure.stats.seeds import METRIC_RANGES, Bounds, seed_interval
from layerwise.measure.stats.statistics import Numbers, StratumLabels, holm_by_key, paired_proportions, wilson
from layerwise.results import Score
from layerwise.results import vocabulary as vocab
from layerwise.results.training_record import TrainingRecord
from layerwise.runner.trainings import make_choice_row, make_trial_rows
from layerwise.studies.heal.benchmarks import ALL, Outcomes
from layerwise.studies.heal.variants import Healing, HealingVariant


def build_rows(
    healing: Healing,
    outcomes: Outcomes,
    records: Mapping[tuple[str, int], TrainingRecord],
    trials: Mapping[str, Mapping[float, float]],
) -> list[Score]:
    """Return all rows. `trials` has the validation loss of every variant at every learning rate tried."""
    return [
        *_models(healing, outcomes),
        *(row for task in outcomes.tasks for row in regained(healing, outcomes, task)),
        *_contrasts(healing, outcomes),
        *window_rows(healing, outcomes),
        *_trials(trials),
        *_costs(records),
    ]


def _models(healing: Healing, outcomes: Outcomes) -> Iterator[Score]:
    seeds = range(healing.seeds)
    models = {name: {**columns, "affected": None} for name, columns in healing.list_base_columns().items()}
    models |= {f"{variant}/{seed}": {"variant": variant, "seed": seed} for variant in healing.names for seed in seeds}
    for task in outcomes.tasks:
        counts: dict[str, Any] = {"task": task, "documents": outcomes.documents(task), "tokens": outcomes.tokens(task)}
        strata = outcomes.strata(task)
        for metric, of in (("nll", outcomes.loss), ("accuracy", outcomes.accuracy)):
            for name, columns in models.items():
                yield Score(vocab.HEALING, metric, of(name, task).value, **columns, **counts)
            for variant in healing.names:
                each = [of(f"{variant}/{seed}", task) for seed in seeds]
                yield _over(vocab.HEALING, metric, each, strata, variant=variant, task=task)


def regained(healing: Healing, outcomes: Outcomes, task: str) -> Iterator[Score]:
    value, low, high = outcomes.difference(vocab.PRUNED, vocab.ORIGINAL, task)
    if vocab.PRUNED in healing.list_base_columns():
        yield Score(
            vocab.HEALING, "lost", value, low, high, variant=vocab.PRUNED, task=task, documents=outcomes.documents(task)
        )
    seeds, strata = range(healing.seeds), outcomes.strata(task)
    whole, has_control = outcomes.loss(vocab.ORIGINAL, task), vocab.IDENTITY_CONTROL in healing.names
    for variant in healing.variants:
        # Random plans are measured from the loss of the requested plan, so all shares have one denominator.
        origin = vocab.PRUNED if variant.name == vocab.RANDOM else healing.name_untrained(variant, 0)
        start = outcomes.loss(origin, task)
        healed = [outcomes.loss(f"{variant.name}/{seed}", task) for seed in seeds]
        nats = [start - each for each in healed]
        columns: dict[str, Any] = {"strata": strata, "variant": variant.name, "task": task}
        yield _over(vocab.HEALING, "above_original", [each - whole for each in healed], **columns)
        yield _over(vocab.HEALING, "regained", nats, **columns)
        lost = start - whole
        # If the loss increase is inconclusive, its share is a ratio of two noisy numbers.
        if (
            variant.name == vocab.IDENTITY_CONTROL
            or lost.value <= 0
            or (origin == vocab.PRUNED and (low is None or low <= 0))
        ):
            continue
        yield _over(vocab.HEALING, "regained_share", [own / lost for own in nats], **columns)
        if has_control:
            gained = [whole - outcomes.loss(f"{vocab.IDENTITY_CONTROL}/{seed}", task) for seed in seeds]
            net = [(own - other) / lost for own, other in zip(nats, gained, strict=True)]
            yield _over(vocab.HEALING, "net_share", net, **columns)


def _contrasts(healing: Healing, outcomes: Outcomes) -> Iterator[Score]:
    main, seeds = healing.names[0], range(healing.seeds)
    others = [
        variant.name
        for variant in healing.variants[1:]
        if variant.name != vocab.IDENTITY_CONTROL and not variant.skipped
    ]
    estimates = {}
    for name in others:
        gaps = [outcomes.loss(f"{main}/{seed}", ALL) - outcomes.loss(f"{name}/{seed}", ALL) for seed in seeds]
        estimates[name] = average_linear(gaps, outcomes.strata(ALL))
    tested = {name: each for name, each in estimates.items() if len(seeds) > 1 and each.terms}
    adjusted = holm_by_key({name: each.p for name, each in tested.items()})
    for name, each in estimates.items():
        row = Score(vocab.HEALING_CONTRAST, "nll", each.value, documents=len(seeds), variant=main, against=name)
        if name in tested:
            low, high = each.value - each.half, each.value + each.half
            row = replace(row, low=low, high=high, p=each.p, p_adjusted=adjusted[name], mde=each.mde)
        yield row


def window_rows(healing: Healing, outcomes: Outcomes) -> Iterator[Score]:
    """Yield the loss increase over the original model by the number of skipped middle layers.

    The row `layers` has the number of layers that can be skipped without an increase (`crossing`). If there is a
    control, rows with a value of `against` are compared with the control, paired by seed.
    """
    windows = [variant for variant in healing.variants if variant.skipped]
    if not windows:
        return
    whole, seeds, strata = outcomes.loss(vocab.ORIGINAL, ALL), range(healing.seeds), outcomes.strata(ALL)
    curves: dict[int, dict[int, LinearEstimate]] = {seed: {} for seed in seeds}
    has_control = vocab.IDENTITY_CONTROL in healing.names
    if has_control:
        for seed in seeds:
            curves[seed][0] = outcomes.loss(f"{vocab.IDENTITY_CONTROL}/{seed}", ALL) - whole
    for variant in windows:
        value, low, high = outcomes.difference(healing.name_untrained(variant, 0), vocab.ORIGINAL, ALL)
        yield Score(
            vocab.HEALING_WINDOW, "above_original", value, low, high, condition=vocab.BEFORE, affected=variant.skipped
        )
        for seed in seeds:
            curves[seed][variant.skipped] = outcomes.loss(f"{variant.name}/{seed}", ALL) - whole
    columns: dict[str, Any] = {"strata": strata, "condition": vocab.HEALED}
    for count in sorted(curves[0]):
        each = [curves[seed][count] for seed in seeds]
        yield _over(vocab.HEALING_WINDOW, "above_original", each, **columns, affected=count)
    against = vocab.IDENTITY_CONTROL if has_control else None
    if has_control:
        curves = {seed: {count: each - curve[0] for count, each in curve.items()} for seed, curve in curves.items()}
        for variant in windows:
            skipped = [curves[seed][variant.skipped] for seed in seeds]
            yield _over(
                vocab.HEALING_WINDOW, "above_original", skipped, **columns, affected=variant.skipped, against=against
            )
    crossings = [layers for seed in seeds if (layers := _crossing(curves[seed])) is not None]
    if len(crossings) == len(seeds):
        yield _over(vocab.HEALING_WINDOW, "layers", crossings, **columns, against=against)


def _crossing(curve: Mapping[int, LinearEstimate]) -> LinearEstimate | None:
    value = crossing({count: each.value for count, each in curve.items()})
    if value is None:
        return None
    units = next(iter(curve.values())).influences.size
    moved = [
        crossing({count: each.value + each.influences[unit] for count, each in curve.items()}) for unit in range(units)
    ]
    return LinearEstimate(value, np.array([0.0 if each is None else each - value for each in moved]))


def crossing(curve: Mapping[int, float]) -> float | None:
    """Return the interpolated number of skipped layers up to which a healed model is no worse than its reference.

    `curve` has the loss increase over the reference by the number of skipped layers. The result is 0 if the model is
    always worse, and None if it is never worse.

    >>> crossing({0: -0.2, 1: -0.1, 2: 0.1}), crossing({1: 0.1, 2: 0.3}), crossing({0: -0.2, 1: -0.1})
    (1.5, 0.0, None)
    """
    points = sorted(curve.items())
    if points[0][1] > 0:
        return 0.0
    for (left, low), (right, high) in pairwise(points):
        if high > 0:
            return left + (right - left) * low / (low - high)
    return None


def _trials(losses: Mapping[str, Mapping[float, float]]) -> Iterator[Score]:
    for variant, by_rate in losses.items():
        yield from make_trial_rows(vocab.HEALING_RATE, variant, by_rate)
        yield make_choice_row(vocab.HEALING_RATE, variant, by_rate)


def _costs(records: Mapping[tuple[str, int], TrainingRecord]) -> Iterator[Score]:
    for (variant, seed), record in records.items():
        taken = {
            "steps": record.steps,
            "examples": record.examples,
            "seconds": record.seconds,
            "best_step": record.best_step,
            **record.figures,
        }
        for metric, value in taken.items():
            yield Score(vocab.HEALING_COST, metric, float(value), variant=variant, seed=seed)


def _over(measure: str, metric: str, seeds: Sequence[LinearEstimate], strata: StratumLabels, **columns: Any) -> Score:
    mean = average_linear(seeds, strata)
    row = Score(measure, metric, mean.value, **columns)
    if mean.half == 0:
        return row
    least, most = (0.0, np.inf) if metric in ("layers", "nll") else METRIC_RANGES.get(metric, (-np.inf, np.inf))
    return replace(row, low=max(least, mean.value - mean.half), high=min(most, mean.value + mean.half))


def benchmark_rows(healing: Healing, surveys: Mapping[str, Survey], chance: Mapping[str, float]) -> Iterator[Score]:
    for task in surveys[vocab.ORIGINAL].outcomes:
        right = {name: survey.outcomes[task].hits for name, survey in surveys.items()}
        shared: dict[str, Any] = {"task": task, "documents": len(right[vocab.ORIGINAL])}
        yield Score(vocab.HEALING_TASK, "accuracy", chance[task], against=vocab.CHANCE, **shared)
        for name, columns in healing.list_base_columns().items():
            if columns["variant"] == vocab.RANDOM:
                continue
            yield _accuracy(right[name], **columns, **shared)
            if name != vocab.ORIGINAL:
                yield _difference([(right[name], right[vocab.ORIGINAL])], against=vocab.ORIGINAL, **columns, **shared)
        for variant in healing.variants:
            yield from _trained(variant, right, healing, shared)


def _trained(
    variant: HealingVariant, right: Mapping[str, Numbers], healing: Healing, shared: Mapping[str, Any]
) -> Iterator[Score]:
    columns: dict[str, Any] = {"variant": variant.name, **shared}
    if variant.skipped:
        columns |= {"condition": vocab.HEALED, "affected": variant.skipped}
    own = [right[f"{variant.name}/{seed}"] for seed in range(healing.seeds)]
    rows = [_accuracy(each, seed=seed, **columns) for seed, each in enumerate(own)]
    yield from rows
    values = [row.value for row in rows]
    bounds = seed_interval(values, "accuracy", [(row.low, row.high) for row in rows])
    yield Score(vocab.HEALING_TASK, "accuracy", float(np.mean(values)), *bounds, **columns)
    yield _difference([(each, right[vocab.ORIGINAL]) for each in own], against=vocab.ORIGINAL, **columns)
    if variant.name not in (vocab.IDENTITY_CONTROL, vocab.RANDOM) and vocab.IDENTITY_CONTROL in healing.names:
        controls = [right[f"{vocab.IDENTITY_CONTROL}/{seed}"] for seed in range(healing.seeds)]
        yield _difference(list(zip(own, controls, strict=True)), against=vocab.IDENTITY_CONTROL, **columns)


def _accuracy(right: Numbers, **columns: Any) -> Score:
    return Score(vocab.HEALING_TASK, "accuracy", *wilson(right.sum(), len(right)).row(), **columns)


def _difference(pairs: Sequence[tuple[Numbers, Numbers]], **columns: Any) -> Score:
    values: list[float] = []
    bounds: list[Bounds] = []
    for first, second in pairs:
        change = first - second
        estimate = paired_proportions(np.maximum(change, 0.0).sum(), np.maximum(-change, 0.0).sum(), len(change))
        values.append(float(estimate.value))
        bounds.append((float(estimate.low), float(estimate.high)))
    interval = seed_interval(values, "accuracy_above", bounds)
    return Score(vocab.HEALING_TASK, "difference", float(np.mean(values)), *interval, **columns)
