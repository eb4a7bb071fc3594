"""The mean of several models, its interval over them, and how far they spread."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from layerwise.measure.interventions.accuracy import Predictions
from layerwise.measure.interventions.robustness import metrics
from layerwise.measure.stats.seeds import over_seeds
from layerwise.results.rows import Score
from layerwise.results.vocabulary import MERGING


def spread(arm: str, part: str, order: str, outcomes: Sequence[Predictions]) -> Iterator[Score]:
    """Means with their interval over models and examples, and the models' standard deviation as `METRIC_spread`."""
    of: dict[str, Any] = {"arm": arm, "part": part, "condition": order}
    of_models = [{metric: (value, (low, high)) for metric, (value, low, high) in metrics(each)} for each in outcomes]
    for metric in of_models[0]:
        values, bounds = zip(*(each[metric] for each in of_models), strict=True)
        low, high = over_seeds(values, metric, bounds)
        yield Score(MERGING, metric, float(np.mean(values)), low, high, **of, documents=len(outcomes[0].hits))
        if len(values) > 1:
            yield Score(MERGING, f"{metric}_spread", float(np.std(values, ddof=1)), **of)
