"""Compare how the metrics of a diagnosis rank the layers.

Metrics are layer to importance, larger for layers that matter more. The rows are:
    agreement, spearman    rank correlation of a metric (`condition`) with the effect of skipping, and its null
    contrast, apart        mean rank correlation of the published metrics over pairs that share no measurement, and its
                           null; `together` is that of pairs that both damage a layer (skip, recovery, noise)
A mean has Student's interval around atanh(r), with the error max(jackknife, sqrt((1 + r^2 / 2) / ((L - 3) P)), Bonett
and Wright 2000). The null of both is 95 % of shuffled orders of the layers.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
from scipy import stats

from layerwise.measure.contrasts.contrast import CONTRAST
from layerwise.measure.stats.estimate import POWER, student_quantile
from layerwise.measure.stats.ranks import normalize_ranks, rank_correlation
from layerwise.measure.stats.statistics import Numbers, Seed
from layerwise.results import vocabulary as vocab
from layerwise.results.rows import Score
from layerwise.results.selection import PRESENT, Rows

CLAIM = "agreement"
SPEARMAN = "spearman"
PUBLISHED = ("predictability", vocab.SKIPPING, "recovery", "noise", "block_influence")
"""The five metrics of arXiv 2603.19348: predictability, ablation, recovery, manipulation, structure."""

DAMAGE = frozenset({vocab.SKIPPING, "recovery", "noise"})
MIN_LAYERS = 6
SHUFFLES, SKIP_SHUFFLES = 1_000, 10_000

Metrics = Mapping[str, Mapping[int, float]]

_NEARLY_ONE = 0.99


def layer_metrics(scores: Iterable[Score]) -> dict[str, dict[int, float]]:
    """Read the metrics by name, layer to importance, from the rows of a diagnosis.

    >>> layer_metrics([Score("ablation", "skip", value, layer=layer) for layer, value in enumerate([0.3, 0.1])])
    {'skip': {0: 0.3, 1: 0.1}}
    """
    rows = Rows(scores).where(task=vocab.ALL, layer=PRESENT, part=None, against=None, seed=None)
    proxies, noise = rows.where(measure=vocab.PROXIES), rows.where(measure=vocab.MANIPULATION, condition="noise")
    sources = {
        "predictability": rows.where(measure=vocab.PREDICTABILITY, metric="heldout_rows_r2"),
        vocab.SKIPPING: rows.where(measure=vocab.ABLATION, metric=vocab.SKIPPING),
        "recovery": _recovery_rows(rows),
        "noise": noise.where(metric=vocab.DELTA_NLL, strength=0.5),
        "block_influence": proxies.where(metric="block_influence"),
        "angular": proxies.where(metric="angular_distance", distance=1),
        "gate_sensitivity": proxies.where(metric="gate_sensitivity"),
        "gate_gradient": proxies.where(metric="gate_gradient"),
    }
    metrics = {name: {row.layer: row.value for row in own if row.layer is not None} for name, own in sources.items()}
    metrics["predictability"] = {layer: 1 - value for layer, value in metrics["predictability"].items()}
    return {name: dict(sorted(values.items())) for name, values in metrics.items() if values}


def _recovery_rows(rows: Rows) -> Rows:
    areas = rows.where(measure=vocab.RECOVERY, metric="area")
    for condition, arm in itertools.product(("equal_damage", "noise_50", "reinitialise"), ("layer", "model")):
        if own := areas.where(condition=condition, arm=arm):
            return own
    return Rows([])


def skip_agreement(metrics: Metrics, *, seed: int = 0) -> Iterator[Score]:
    skips = metrics.get(vocab.SKIPPING, {})
    for name, values in metrics.items():
        shared = sorted(skips.keys() & values.keys())
        pair = [[each[layer] for layer in shared] for each in (skips, values)]
        correlation = None if name == vocab.SKIPPING else rank_correlation(*pair, seed=seed, shuffles=SKIP_SHUFFLES)
        if correlation is not None:
            yield Score(
                vocab.AGREEMENT,
                SPEARMAN,
                correlation.value,
                correlation.low,
                correlation.high,
                correlation.p,
                condition=name,
            )
            band = (0.0, correlation.null_low, correlation.null_high)
            yield Score(vocab.AGREEMENT, SPEARMAN, *band, condition=name, against=vocab.SHUFFLED_LAYERS)


def published_agreement(metrics: Metrics, *, seed: Seed) -> list[Score]:
    known = {name: metrics[name] for name in PUBLISHED if len(metrics.get(name, ())) >= MIN_LAYERS}
    layers = sorted(set.intersection(*(set(each) for each in known.values()))) if known else []
    names = [name for name in known if len({known[name][layer] for layer in layers}) > 1]
    pairs = list(itertools.combinations(range(len(names)), 2))
    apart = [pair for pair in pairs if not {names[index] for index in pair} <= DAMAGE]
    together = [pair for pair in pairs if pair not in apart]
    if len(layers) < MIN_LAYERS or not apart:
        return []
    values = np.array([[known[name][layer] for layer in layers] for name in names])
    band = _shuffled_band(values, apart, np.random.default_rng(seed))
    return [
        *([_mean_row("together", values, together)] if together else []),
        _mean_row("apart", values, apart),
        Score(CONTRAST, "apart", 0.0, *band, claim=CLAIM, against=vocab.SHUFFLED_LAYERS),
        Score(CONTRAST, "layers", float(len(layers)), claim=CLAIM),
    ]


def _mean_row(metric: str, values: Numbers, pairs: Sequence[tuple[int, int]]) -> Score:
    layers = values.shape[1]
    mean = float(_mean_correlations(values, pairs))
    others = ~np.eye(layers, dtype=bool)
    left_out = _mean_correlations(np.stack([values[:, kept] for kept in others]), pairs)
    middle = float(np.arctanh(np.clip(mean, -_NEARLY_ONE, _NEARLY_ONE)))
    slope = 1 / (1 - min(abs(mean), _NEARLY_ONE) ** 2)
    jackknife = slope * np.sqrt((layers - 1) / layers * np.square(left_out - left_out.mean()).sum())
    independent = np.sqrt((1 + mean**2 / 2) / ((layers - 3) * len(pairs)))
    error = float(max(jackknife, independent))
    reach = student_quantile(0.975, layers - 1.0) * error
    low, high = float(np.tanh(middle - reach)), float(np.tanh(middle + reach))
    seen = float(np.tanh(reach + student_quantile(POWER, layers - 1.0) * error))
    return Score(CONTRAST, metric, mean, min(low, mean), max(high, mean), claim=CLAIM, mde=seen)


def _mean_correlations(values: Numbers, pairs: Sequence[tuple[int, int]]) -> Numbers:
    unit = normalize_ranks(values)
    correlations = unit @ np.swapaxes(unit, -1, -2)
    return np.asarray(np.mean([correlations[..., left, right] for left, right in pairs], axis=0))


def _shuffled_band(values: Numbers, pairs: Sequence[tuple[int, int]], draw: np.random.Generator) -> tuple[float, float]:
    shuffled = draw.permuted(np.broadcast_to(stats.rankdata(values, axis=1), (SHUFFLES, *values.shape)), axis=-1)
    low, high = np.quantile(_mean_correlations(shuffled, pairs), [0.025, 0.975])
    return float(low), float(high)
