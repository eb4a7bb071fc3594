"""Stability of training: spikes of the loss, and spread of the final loss over seeds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike
from scipy import special, stats

from layerwise.measure.stats.seeds import seed_interval
from layerwise.measure.stats.statistics import holm_by_key, wilson
from layerwise.results.rows import Score
from layerwise.results.vocabulary import MASKED_LM, STABILITY, TRAINING

BEFORE = 5

MIN_NOTES = 8
"""Minimum number of losses after the first `BEFORE` losses."""

MIN_RISE = 0.1
"""Minimum height of a spike in nats."""

FALSE_POSITIVE_RATE = 0.01
"""Fraction of runs in which noise is counted as a spike."""


def find_spikes(losses: ArrayLike) -> tuple[int, float] | None:
    """Count the spikes in training losses and find the largest rise in nats, or return None for too few losses.

    With r_t the loss minus the median of the five losses before it, step t is part of a spike if

        r_t > max(0.1 nats, z * s)      s = 1.15 * 1.4826 * median |loss_t - (loss_{t-1} + loss_{t+1}) / 2| / sqrt(3/2)

    s estimates the noise from second differences. z is the normal quantile at which noise exceeds z * s anywhere in 1 %
    of runs. A non-finite loss is a spike.

    >>> falling = [5.0, 4.5, 4.2, 4.0, 3.9, 3.8, 3.75, 3.7, 3.66, 3.63, 3.6, 3.58, 3.56, 3.55]
    >>> find_spikes(falling)[0], find_spikes([*falling, 5.5, 3.54])[0]
    (0, 1)
    """
    values = np.asarray(losses, dtype=np.float64)
    if len(values) < BEFORE + MIN_NOTES:
        return None
    values = np.where(np.isfinite(values), values, np.nan)
    windows = np.lib.stride_tricks.sliding_window_view(values, BEFORE)[:-1]
    rises = values[BEFORE:] - np.median(windows, axis=1)
    bends = np.abs(values[1:-1] - (values[:-2] + values[2:]) / 2)
    noise = float(np.sqrt(1 + np.pi / (2 * BEFORE)) * 1.4826 * np.nanmedian(bends) / np.sqrt(1.5))
    threshold = max(MIN_RISE, float(stats.norm.isf(FALSE_POSITIVE_RATE / len(rises))) * noise)
    above = ~(rises <= threshold)
    starts = above & ~np.concatenate([[False], above[:-1]])
    return int(starts.sum()), float(np.max(np.where(np.isfinite(rises), rises, np.inf)))


def stability_rows(rows: Iterable[Score], backbone: str) -> list[Score]:
    """Return rows of measure `stability`, computed from the training losses and held-out losses of variants.

    The first two metrics are for each seed, the others for each variant:

        spikes, highest    number of spikes, and the largest rise in nats
        spiked             fraction of seeds with spikes (Wilson's interval)
        spread             standard deviation of the held-out loss over seeds (chi-squared interval)
        spread_ratio       spread divided by that of `backbone` (F test, Holm-corrected over variants)
        gradient_norm      mean gradient norm over seeds
    """
    rows = [row for row in rows if row.variant is not None and row.seed is not None]
    curves: dict[tuple[str, int], dict[float, float]] = {}
    for row in rows:
        if (row.measure, row.metric) == (TRAINING, "train_loss") and row.step is not None:
            curves.setdefault((str(row.variant), int(row.seed or 0)), {})[row.step] = row.value
    results: list[Score] = []
    spiked: dict[str, list[bool]] = {}
    for (variant, seed), curve in curves.items():
        spikes = find_spikes([curve[step] for step in sorted(curve)])
        if spikes is not None:
            spiked.setdefault(variant, []).append(spikes[0] > 0)
            results.append(Score(STABILITY, "spikes", float(spikes[0]), variant=variant, seed=seed))
            results.append(Score(STABILITY, "highest", spikes[1], variant=variant, seed=seed))
    for variant, flags in spiked.items():
        results.append(Score(STABILITY, "spiked", *wilson(sum(flags), len(flags)).row(), variant=variant))
    losses = _group_by_variant(row for row in rows if (row.measure, row.metric) == (MASKED_LM, "nll"))
    norms = _group_by_variant(row for row in rows if (row.measure, row.metric) == (TRAINING, "gradient_norm"))
    return [*results, *_spreads(losses, backbone), *_means(norms)]


def _group_by_variant(rows: Iterable[Score]) -> dict[str, list[float]]:
    values: dict[str, list[float]] = {}
    for row in rows:
        values.setdefault(str(row.variant), []).append(row.value)
    return values


def _spreads(losses: Mapping[str, Sequence[float]], backbone: str) -> list[Score]:
    several = {variant: values for variant, values in losses.items() if len(values) > 1}
    rows = []
    for variant, values in several.items():
        freedom, spread = len(values) - 1, float(np.std(values, ddof=1))
        low, high = (spread * float(np.sqrt(freedom / special.chdtri(freedom, part))) for part in (0.025, 0.975))
        rows.append(Score(STABILITY, "spread", spread, low, high, variant=variant))
    base = several.get(backbone)
    if base is None or np.std(base) == 0:
        return rows
    ratios = {variant: _ratio(values, base) for variant, values in several.items() if variant != backbone}
    adjusted = holm_by_key({variant: p for variant, (*_, p) in ratios.items()})
    return rows + [
        Score(STABILITY, "spread_ratio", *each, p_adjusted=adjusted[variant], variant=variant)
        for variant, each in ratios.items()
    ]


def _ratio(values: Sequence[float], base: Sequence[float]) -> tuple[float, float, float, float]:
    freedom = len(values) - 1, len(base) - 1
    squared = float(np.var(values, ddof=1) / np.var(base, ddof=1))
    low, high = (float(np.sqrt(squared / special.fdtri(*freedom, part))) for part in (0.975, 0.025))
    p = 2 * min(special.fdtr(*freedom, squared), special.fdtrc(*freedom, squared))
    return float(np.sqrt(squared)), low, high, float(min(1.0, p))


def _means(norms: Mapping[str, Sequence[float]]) -> list[Score]:
    rows = []
    for variant, values in norms.items():
        low, high = seed_interval(values)
        rows.append(Score(STABILITY, "gradient_norm", float(np.mean(values)), low, high, variant=variant))
    return rows
