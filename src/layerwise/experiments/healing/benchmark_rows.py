"""The rows of a healing's benchmarks: what every model answers right, and the paired differences.

    accuracy      the share of right answers; Wilson's interval over the questions
    difference    the mean over questions of right - right of the model that it is `against`, question by question

The models are compared with the untouched one and, seed by seed, with the whole one that was trained as long: what the
text alone gives is the same for both. The interval of one seed is Bonett and Price's over the questions; that of
several is over seeds and questions (`over_seeds`). Guessing is a row `against` chance.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from layerwise.experiments.healing.rows import Trainings, before
from layerwise.measure.interventions.survey import Survey
from layerwise.measure.stats.seeds import Bounds, over_seeds
from layerwise.measure.stats.statistics import Numbers, paired_proportions, wilson
from layerwise.results.rows import Score
from layerwise.results.vocabulary import (
    BEFORE,
    CHANCE,
    HEALED,
    HEALING_TASK,
    PRUNED,
    RANDOM,
    SKIP,
    UNTOUCHED,
    WHOLE,
)  # fmt: skip

DIFFERENCE_RANGE = "accuracy_above"
"""What a difference of accuracies can be (`RANGES`)."""


def benchmark_rows(
    trainings: Trainings, surveys: Mapping[str, Survey], chance: Mapping[str, float]
) -> Iterator[Score]:  # fmt: skip
    """The rows of every benchmark, by the surveys of all models."""
    for task in surveys[UNTOUCHED].outcomes:
        right = {name: survey.outcomes[task].hits for name, survey in surveys.items()}
        shared: dict[str, Any] = {"task": task, "documents": len(right[UNTOUCHED])}
        yield Score(HEALING_TASK, "accuracy", chance[task], against=CHANCE, **shared)
        for name, columns in _bases(trainings).items():
            yield _accuracy(right[name], **columns, **shared)
            if name != UNTOUCHED:
                yield _difference([(right[name], right[UNTOUCHED])], against=UNTOUCHED, **columns, **shared)
        for arm in trainings.names:
            yield from _trained(arm, right, trainings, shared)


def _bases(trainings: Trainings) -> dict[str, dict[str, Any]]:
    """The base under the plans that are compared, by the name of its survey, with the columns of its rows."""
    bases: dict[str, dict[str, Any]] = {UNTOUCHED: {"arm": UNTOUCHED}, PRUNED: {"arm": PRUNED}}
    for arm in trainings.names:
        if arm.startswith(SKIP):
            bases[before(arm, 0)] = {"arm": arm, "condition": BEFORE, "amount": _count(arm)}
    return bases


def _trained(
    arm: str, right: Mapping[str, Numbers], trainings: Trainings, shared: Mapping[str, Any]
) -> Iterator[Score]:  # fmt: skip
    """What the models of an arm answer, one by one and on the mean, beside the untouched one and beside the control."""
    columns: dict[str, Any] = {"arm": arm, **shared}
    if arm.startswith(SKIP):
        columns |= {"condition": HEALED, "amount": _count(arm)}
    own = [right[f"{arm}/{seed}"] for seed in range(trainings.seeds)]
    rows = [_accuracy(each, seed=seed, **columns) for seed, each in enumerate(own)]
    yield from rows
    values = [row.value for row in rows]
    bounds = over_seeds(values, "accuracy", [(row.low, row.high) for row in rows])
    yield Score(HEALING_TASK, "accuracy", float(np.mean(values)), *bounds, **columns)
    yield _difference([(each, right[UNTOUCHED]) for each in own], against=UNTOUCHED, **columns)
    if arm not in (WHOLE, RANDOM) and WHOLE in trainings.names:
        controls = [right[f"{WHOLE}/{seed}"] for seed in range(trainings.seeds)]
        yield _difference(list(zip(own, controls, strict=True)), against=WHOLE, **columns)


def _accuracy(right: Numbers, **columns: Any) -> Score:
    estimate = wilson(right.sum(), len(right))
    low, high = float(estimate.low), float(estimate.high)
    return Score(HEALING_TASK, "accuracy", float(right.mean()), low, high, **columns)


def _difference(pairs: Sequence[tuple[Numbers, Numbers]], **columns: Any) -> Score:
    """The mean over seeds of the difference between two models on the same questions."""
    values: list[float] = []
    bounds: list[Bounds] = []
    for first, second in pairs:
        change = first - second
        estimate = paired_proportions(np.maximum(change, 0.0).sum(), np.maximum(-change, 0.0).sum(), len(change))
        values.append(float(estimate.value))
        bounds.append((float(estimate.low), float(estimate.high)))
    interval = over_seeds(values, DIFFERENCE_RANGE, bounds)
    return Score(HEALING_TASK, "difference", float(np.mean(values)), *interval, **columns)


def _count(arm: str) -> int:
    return int(arm.removeprefix(SKIP))
