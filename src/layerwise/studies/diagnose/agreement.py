"""Compute the agreement of the five published metrics, and of the pairs of them that share no measurement.

predictability (1 - R2 of held-out rows), ablation (effect of skipping), recovery (area above twin), manipulation (noise
of half the weights' norm), structure (Block Influence), over the `layers` that all of them rank:
    together  mean rank correlation of pairs that both damage a layer (ablation, recovery, manipulation): the null
    apart     mean of all other pairs, with the band of `shuffled_layers`
Student's interval around atanh(r); error: max(jackknife, sqrt((1 + r^2 / 2) / ((L - 3) P)), Bonett and Wright 2000).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from scipy import stats

from layerwise.measure.contrasts.contrast import CONTRAST
from layerwise.measure.stats.agreement import rankings
from layerwise.measure.stats.estimate import POWER, student
from layerwise.measure.stats.ranks import unit_ranks
from layerwise.measure.stats.statistics import Numbers, Seed
from layerwise.results.rows import Score
from layerwise.results.selection import PRESENT, Rows
from layerwise.results.vocabulary import ALL, DELTA_NLL, MANIPULATION, PREDICTABILITY, SHUFFLED_LAYERS

CLAIM = "agreement"
DAMAGE = frozenset({"ablation", "recovery", "manipulation"})
FEWEST_LAYERS = 6
SHUFFLES = 1_000

_NEARLY_ONE = 0.99


def published_metrics(scores: Iterable[Score]) -> dict[str, dict[int, float]]:
    """The five metrics by name, layer to importance; those that the rows do not have are left out."""
    rows = Rows(scores)
    known = rankings(rows)
    metrics = {
        "predictability": {
            layer: 1 - value for layer, value in _layers(rows, PREDICTABILITY, "heldout_rows_r2").items()
        },
        "ablation": dict(known.get("skip", {})),
        "recovery": dict(known.get("recovery", {})),
        "manipulation": _layers(rows, MANIPULATION, DELTA_NLL, condition="noise", amount=0.5),
        "structure": dict(known.get("block_influence", {})),
    }
    return {name: ranking for name, ranking in metrics.items() if len(ranking) >= FEWEST_LAYERS}


def agreement(metrics: Mapping[str, Mapping[int, float]], *, seed: Seed) -> list[Score]:
    """The rows of the module; none over fewer than 6 layers, or where no two metrics are apart."""
    layers = sorted(set.intersection(*(set(each) for each in metrics.values()))) if metrics else []
    names = [name for name in metrics if len({metrics[name][layer] for layer in layers}) > 1]
    pairs = list(itertools.combinations(range(len(names)), 2))
    apart = [pair for pair in pairs if not {names[index] for index in pair} <= DAMAGE]
    together = [pair for pair in pairs if pair not in apart]
    if len(layers) < FEWEST_LAYERS or not apart:
        return []
    values = np.array([[metrics[name][layer] for layer in layers] for name in names])
    band = _shuffled(values, apart, np.random.default_rng(seed))
    return [
        *([_row("together", values, together)] if together else []),
        _row("apart", values, apart),
        Score(CONTRAST, "apart", 0.0, *band, claim=CLAIM, against=SHUFFLED_LAYERS),
        Score(CONTRAST, "layers", float(len(layers)), claim=CLAIM),
    ]


def _layers(rows: Rows, measure: str, metric: str, **columns: Any) -> dict[int, float]:
    own = rows.where(
        measure=measure, metric=metric, task=ALL, layer=PRESENT, other=None, part=None, against=None, **columns
    )
    return {row.layer: row.value for row in own if row.layer is not None}


def _row(metric: str, values: Numbers, pairs: Sequence[tuple[int, int]]) -> Score:
    layers = values.shape[1]
    mean = float(_mean_correlations(values, pairs))
    others = ~np.eye(layers, dtype=bool)
    left_out = _mean_correlations(np.stack([values[:, kept] for kept in others]), pairs)
    middle = float(np.arctanh(np.clip(mean, -_NEARLY_ONE, _NEARLY_ONE)))
    slope = 1 / (1 - min(abs(mean), _NEARLY_ONE) ** 2)
    jackknife = slope * np.sqrt((layers - 1) / layers * np.square(left_out - left_out.mean()).sum())
    independent = np.sqrt((1 + mean**2 / 2) / ((layers - 3) * len(pairs)))
    error = float(max(jackknife, independent))
    reach = student(0.975, layers - 1.0) * error
    low, high = float(np.tanh(middle - reach)), float(np.tanh(middle + reach))
    seen = float(np.tanh(reach + student(POWER, layers - 1.0) * error))
    return Score(CONTRAST, metric, mean, min(low, mean), max(high, mean), claim=CLAIM, mde=seen)


def _mean_correlations(values: Numbers, pairs: Sequence[tuple[int, int]]) -> Numbers:
    unit = unit_ranks(values)
    correlations = unit @ np.swapaxes(unit, -1, -2)
    return np.asarray(np.mean([correlations[..., left, right] for left, right in pairs], axis=0))


def _shuffled(values: Numbers, pairs: Sequence[tuple[int, int]], draw: np.random.Generator) -> tuple[float, float]:
    shuffled = draw.permuted(np.broadcast_to(stats.rankdata(values, axis=1), (SHUFFLES, *values.shape)), axis=-1)
    low, high = np.quantile(_mean_correlations(shuffled, pairs), [0.025, 0.975])
    return float(low), float(high)
