"""The mean of several models, its interval over them, and how far they spread."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from layerwise.measure.interventions.accuracy import Predictions
from layerwise.measure.interventions.robustness import metrics
from layerwise.measure.stats.seeds import over_seeds
from layerwise.results.rows import Score

MEASURE = "merging"


def spread(arm: str, task: str, outcomes: Sequence[Predictions]) -> Iterator[Score]:
    """Means over models with Student's interval over them, and their standard deviation as `<metric>@spread`."""
    for metric in _values(outcomes[0]):
        values = [_values(outcome)[metric] for outcome in outcomes]
        several = len(values) > 1
        low, high = over_seeds(values, metric) if several and np.ptp(values) > 0 else (None, None)
        yield Score(MEASURE, arm, task, metric, float(np.mean(values)), low, high, documents=len(outcomes[0].hits))
        if several:
            yield Score(MEASURE, arm, task, f"{metric}@spread", float(np.std(values, ddof=1)))


def _values(outcome: Predictions) -> dict[str, float]:
    return {metric: value for metric, (value, _, _) in metrics(outcome)}
