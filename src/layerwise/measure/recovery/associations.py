"""Rank correlations over layers of recovery with the effect of skipping, with the null of shuffled layers.

Rows of measure `recovery`, by damage (condition) and trained part (arm), with intervals over layers:

    spearman               by area, over the damaged layers
    spearman_given_damage  the partial rank correlation, with the initial damage held fixed
    spearman_published     by area, over all layers, those without damage counted as recovered at once
    layers                 the number of damaged layers
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from layerwise.measure.stats.ranks import rank_correlation
from layerwise.results.rows import Score
from layerwise.results.selection import PRESENT, Rows
from layerwise.results.vocabulary import ABLATION, ALL, RECOVERY, SHUFFLED_LAYERS, SKIPPING

SHUFFLES = 2_000
METRICS = ("spearman", "spearman_given_damage", "spearman_published")


@dataclass(frozen=True, slots=True)
class Recovered:
    """The recovery of one layer: initial damage and area above the twin; `damaged` is false below the tolerance."""

    layer: int
    damage: float | None = 0.0
    area: float | None = 0.0
    damaged: bool = True


def associations(
    treatment: tuple[str, str],
    layers: Sequence[Recovered],
    effects: Iterable[Score],
    seed: int,
    *,
    shuffles: int = SHUFFLES,
) -> Iterator[Score]:
    skips = Rows(effects).where(measure=ABLATION, task=ALL, metric=SKIPPING, layer=PRESENT, part=None, against=None)
    skipped = {row.layer: row.value for row in skips}
    shared = [each for each in layers if each.layer in skipped]
    damaged = [each for each in shared if each.damaged]
    if not shared:
        return
    damage, scope = treatment
    of: dict[str, Any] = {"condition": damage, "arm": scope}
    yield Score(RECOVERY, "layers", float(len(damaged)), **of)
    for metric in METRICS:
        chosen = shared if metric == "spearman_published" else damaged
        known = [each for each in chosen if each.area is not None and each.damage is not None]
        correlation = rank_correlation(
            np.array([each.area for each in known], dtype=np.float64),
            [skipped[each.layer] for each in known],
            given=np.array([each.damage for each in known]) if metric == "spearman_given_damage" else None,
            seed=(seed, zlib.crc32(f"{damage}/{scope} {metric}".encode())),
            shuffles=shuffles,
        )
        if correlation is not None:
            yield Score(RECOVERY, metric, correlation.value, correlation.low, correlation.high, correlation.p, **of)
            band = correlation.null_low, correlation.null_high
            yield Score(RECOVERY, metric, 0.0, *band, **of, against=SHUFFLED_LAYERS)
