"""Compute the rank correlation of the metrics of a diagnosis, layer to importance, with the effect of skipping."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping

from layerwise.measure.stats.ranks import rank_correlation
from layerwise.results import vocabulary as vocab
from layerwise.results.rows import Score
from layerwise.results.selection import PRESENT, Rows

SHUFFLES = 10_000

Metrics = Mapping[str, Mapping[int, float]]


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
        correlation = None if name == vocab.SKIPPING else rank_correlation(*pair, seed=seed, shuffles=SHUFFLES)
        if correlation is not None:
            numbers = (correlation.value, correlation.low, correlation.high, correlation.p)
            yield Score(vocab.AGREEMENT, "spearman", *numbers, condition=name)
            band = (0.0, correlation.null_low, correlation.null_high)
            yield Score(vocab.AGREEMENT, "spearman", *band, condition=name, against=vocab.SHUFFLED_LAYERS)
