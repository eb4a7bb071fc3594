"""Agreement: do the scores of a diagnosis rank the layers alike, and more so than chance would?

    spearman                        arm a, against b: rank correlation over the layers that both scores rank
    spearman against random_score   arm a: the band of 95 % of random rankings of as many layers

Larger scores mean more important layers. Intervals are Fisher's, over layers and not over texts
(`layerwise.measure.stats.ranks`); p is two-sided against random rankings, with Holm's correction over all pairs.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from layerwise.measure.stats.ranks import FEWEST_LAYERS, centred_ranks, fisher_interval
from layerwise.measure.stats.statistics import Numbers, holm
from layerwise.results.rows import Score
from layerwise.results.selection import PRESENT, Rows
from layerwise.results.vocabulary import ABLATION, AGREEMENT, ALL, PROXIES, RANDOM_SCORE, RECOVERY, SKIPPING

SPEARMAN = "spearman"
DRAWS = 10_000

Ranking = Mapping[int, float]
"""Layer to importance; layers that a score does not speak of are missing."""


@dataclass(frozen=True, slots=True)
class _Source:
    name: str
    measure: str
    metric: str
    amount: float | None = None
    treatments: tuple[tuple[str | None, str | None], ...] = ((None, None),)
    """The condition and the arm of the rows, the best first."""

    def ranking(self, rows: Rows) -> Ranking:
        own = rows.where(
            measure=self.measure,
            metric=self.metric,
            task=ALL,
            layer=PRESENT,
            part=None,
            against=None,
            seed=None,
            amount=self.amount,
        )
        chosen = (own.where(condition=condition, arm=arm) for condition, arm in self.treatments)
        return {row.layer: row.value for row in next(filter(len, chosen), ()) if row.layer is not None}


_TREATMENTS = tuple(itertools.product(("equal_damage", "noise_50", "reinitialise"), ("layer", "model")))

_SOURCES = (
    *(_Source(name, ABLATION, name) for name in (SKIPPING, "mean_ablate", "neighbour_copy", "neighbour_average")),
    _Source("random_weights", ABLATION, "random"),
    _Source("block_influence", PROXIES, "block_influence"),
    _Source("angular", PROXIES, "angular_distance", amount=1.0),
    _Source("gate_sensitivity", PROXIES, "gate_sensitivity"),
    _Source("gate_gradient", PROXIES, "gate_gradient"),
    _Source("recovery", RECOVERY, "area", treatments=_TREATMENTS),
)

NAMES = tuple(source.name for source in _SOURCES)
"""The scores there can be, in the order of the report."""


def rankings(scores: Iterable[Score]) -> dict[str, Ranking]:
    """Every ranking that the rows hold, by the name of its score, in the order of `NAMES`.

    >>> rows = [Score("ablation", "skip", value, layer=layer) for layer, value in enumerate([0.3, 0.1])]
    >>> rankings(rows)
    {'skip': {0: 0.3, 1: 0.1}}
    """
    rows = Rows(scores)
    by_source = {source.name: source.ranking(rows) for source in _SOURCES}
    return {name: dict(sorted(ranking.items())) for name, ranking in by_source.items() if ranking}


def agreement(scores: Iterable[Score], *, seed: int = 0) -> list[Score]:
    """Compute the agreement of all `rankings` in `scores`.

    A pair that shares fewer than 4 layers, or with a constant score, has no row. Depends on the rows and `seed` alone.
    """
    by_name = rankings(scores)
    pairs = [_Pair.of(left, right, by_name) for left, right in itertools.combinations(by_name, 2)]
    sizes = {len(each) for each in by_name.values()} | {pair.size for pair in pairs}
    nulls = {size: _random_band(size, seed) for size in sizes if size >= FEWEST_LAYERS}
    values = {pair: pair.value for pair in pairs if pair.size >= FEWEST_LAYERS}
    known = {pair: value for pair, value in values.items() if np.isfinite(value)}
    chances = [_chance(value, nulls[pair.size]) for pair, value in known.items()]
    adjusted = holm(chances) if chances else np.empty(0)
    rows = []
    for (pair, value), p, corrected in zip(known.items(), chances, adjusted.tolist(), strict=True):
        low, high = fisher_interval(value, pair.size - 3)
        rows.append(Score(AGREEMENT, SPEARMAN, value, low, high, p, corrected, arm=pair.name, against=pair.against))
    for name, ranking in by_name.items():
        if len(ranking) >= FEWEST_LAYERS:
            reach = float(np.quantile(nulls[len(ranking)], 0.95))
            rows.append(Score(AGREEMENT, SPEARMAN, 0.0, -reach, reach, arm=name, against=RANDOM_SCORE))
    return rows


def rank_correlations(left: Numbers, right: Numbers) -> Numbers:
    """Return Spearman's rank correlation of each row of two arrays (rows, layers), NaN where a row does not vary.

    >>> rank_correlations(np.array([[1.0, 2.0, 3.0]]), np.array([[1.0, 3.0, 2.0]])).tolist()
    [0.5]
    """
    seen, other = (centred_ranks(each) for each in (left, right))
    norms = np.sqrt(np.square(seen).sum(axis=1) * np.square(other).sum(axis=1))
    products = (seen * other).sum(axis=1)
    with np.errstate(invalid="ignore"):
        return np.asarray(np.clip(np.where(norms > 0, products, np.nan) / norms, -1.0, 1.0))


@dataclass(frozen=True, slots=True)
class _Pair:
    name: str
    against: str
    left: tuple[float, ...]
    right: tuple[float, ...]

    @classmethod
    def of(cls, left: str, right: str, rankings: dict[str, Ranking]) -> _Pair:
        shared = sorted(rankings[left].keys() & rankings[right].keys())
        one, other = (tuple(rankings[name][layer] for layer in shared) for name in (left, right))
        return cls(left, right, one, other)

    @property
    def size(self) -> int:
        return len(self.left)

    @property
    def value(self) -> float:
        return float(rank_correlations(np.array([self.left]), np.array([self.right]))[0])


def _random_band(size: int, seed: int) -> Numbers:
    draw = np.random.default_rng([seed, size, DRAWS])
    drawn = draw.permuted(np.tile(np.arange(size, dtype=np.float64), (DRAWS, 1)), axis=1)
    fixed = np.tile(np.arange(size, dtype=np.float64), (DRAWS, 1))
    return np.abs(rank_correlations(fixed, drawn))


def _chance(value: float, null: Numbers) -> float:
    """The share of random rankings that agree, or disagree, as strongly; sums of ranks are exact, so ties are exact."""
    return float((1 + (null >= abs(value)).sum()) / (1 + null.size))
