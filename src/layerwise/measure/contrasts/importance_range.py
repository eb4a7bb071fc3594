"""How far apart are the layers: in orders of magnitude, from the largest effect to the middle one.

The published range divides the largest effect by the one nearest to zero. Any effects that cross zero have a ratio
without bound, and how near to it one comes is decided by the text. So the range is measured to the median layer:

    range      log10(largest / max(median, 0.001))
    published  log10(largest / the least of all magnitudes), which noise decides wherever a layer does little

of the effects of skipping single layers, in nats per token. Ratios of perplexity in percent would grow exponentially
with the same losses: 10^7 in percent of perplexity is 10^3 in nats.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from layerwise.measure.contrasts.arms import arms
from layerwise.measure.contrasts.contrast import RESAMPLES, Part, contrast
from layerwise.measure.stats.statistics import Numbers, Seed
from layerwise.results.rows import Loss, Score

CLAIM = "importance_range"

LEAST = 1e-3
"""Nats per token: a median effect that is smaller counts as this."""

_TINY = 1e-12
"""What keeps the logarithm of no effect at all finite."""


def importance_range(losses: Sequence[Loss], baseline: str, keys: Sequence[str], *, seed: Seed) -> list[Score]:
    """The rows of the module for the layers that `keys` skip; none where a loss is missing."""
    part = arms(losses, baseline, keys)
    return [] if part is None else importance_range_rows(part, seed=seed)


def importance_range_rows(part: Part, *, seed: Seed, resamples: int = RESAMPLES) -> list[Score]:
    """The rows of the module from the effects of skipping each layer."""
    return [
        contrast([part], statistic, seed=seed, resamples=resamples).row(CLAIM, metric)
        for metric, statistic in (("range", _to_the_median), ("published", _to_the_least))
    ]


def _to_the_median(effects: Numbers) -> Numbers:
    return _orders(effects, np.maximum(np.median(effects, axis=-1), LEAST))


def _to_the_least(effects: Numbers) -> Numbers:
    return _orders(effects, np.abs(effects).min(axis=-1))


def _orders(effects: Numbers, base: Numbers) -> Numbers:
    """Orders of magnitude from `base` (...) to the largest of `effects` (..., layers)."""
    largest = np.maximum(effects.max(axis=-1), _TINY)
    return np.asarray(np.log10(largest) - np.log10(np.maximum(base, _TINY)))
