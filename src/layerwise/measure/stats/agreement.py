"""Agreement: do the scores of a diagnosis rank the layers alike, and more so than chance would?

    spearman, kendall                    arm a, against b: rank correlation of scores a and b over the layers both rank
    the same                             arm a, against random_score: the null, the band in which 95 % of random
                                         rankings of as many layers lie around 0
    spearman_halves, kendall_halves      arm a, against a: score a from one half of the documents against itself from
                                         the other half; value, low and high over random halvings

Intervals are percentiles of a bootstrap over layers: they say how much hangs on single layers, not what another text
would give, which is what the halves are for. p is two-sided against random rankings, Holm's over all pairs of scores.
A score that agrees with the measured skip no better than its own halves do with each other has nothing left to explain.

What each score of a diagnosis says of the layers is read off its rows, larger meaning more important:

    skip, mean_ablate, neighbour_copy,      the ablation of that name, nats per token
    neighbour_average
    random_weights                          the ablation `random`
    block_influence                         the proxy of that name
    angular                                 the angular distance across the one layer
    gate_sensitivity, gate_gradient         the proxies of those names
    recovery                                the area under the recovery curve, after damage of equal size where there
                                            is one
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from layerwise.measure.stats.grid import arrange
from layerwise.measure.stats.ranks import FEWEST_LAYERS, centred_ranks
from layerwise.measure.stats.statistics import Numbers, holm
from layerwise.plan import Plan
from layerwise.results.rows import Loss, Score
from layerwise.results.selection import PRESENT, Rows
from layerwise.results.vocabulary import ABLATION, AGREEMENT, ALL, PROXIES, RANDOM_SCORE, RECOVERY, SKIPPING

METRICS = ("spearman", "kendall")
RESAMPLES = 2000
DRAWS = 10_000
HALVINGS = 200

_KEY = re.compile(r"(\d+)=([a-z_]+)")

Ranking = Mapping[int, float]
"""Layer to importance; layers that a score does not speak of are missing."""


@dataclass(frozen=True, slots=True)
class _Source:
    """Where a score is found: the rows of one measure and metric, of the first of `treatments` that there is."""

    name: str
    measure: str
    metric: str
    amount: float | None = None
    treatments: tuple[tuple[str | None, str | None], ...] = ((None, None),)
    """The condition and the arm of the rows, the best first."""

    def ranking(self, rows: Rows) -> Ranking:
        """The values by layer."""
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

ABLATIONS = {source.metric: source.name for source in _SOURCES if source.measure == ABLATION}
"""The name under which each ablation is ranked."""


def rankings(scores: Iterable[Score]) -> dict[str, Ranking]:
    """Every ranking that the rows hold, by the name of its score, in the order of `NAMES`.

    >>> rows = [Score("ablation", "skip", value, layer=layer) for layer, value in enumerate([0.3, 0.1])]
    >>> rankings(rows)
    {'skip': {0: 0.3, 1: 0.1}}
    """
    rows = Rows(scores)
    by_source = {source.name: source.ranking(rows) for source in _SOURCES}
    return {name: dict(sorted(ranking.items())) for name, ranking in by_source.items() if ranking}


def agreement(scores: Iterable[Score], *, seed: int = 0, losses: Iterable[Loss] = ()) -> list[Score]:
    """The agreement of all rankings found in `scores` (see `rankings`).

    `losses`, those of the ablation, add the agreement of its scores between halves of the documents. A pair that shares
    fewer than 4 layers, or of which one does not vary, has no row. Depends on the rows and `seed` alone.
    """
    by_name = rankings(scores)
    pairs = [_Pair.of(left, right, by_name) for left, right in itertools.combinations(by_name, 2)]
    nulls = {
        size: _random_band(size, seed) for size in {len(each) for each in by_name.values()} | {p.size for p in pairs}
    }
    rows = []
    for metric in METRICS:
        values = {pair: pair.value(metric) for pair in pairs if pair.size >= FEWEST_LAYERS}
        known = {pair: value for pair, value in values.items() if np.isfinite(value)}
        chances = [_chance(value, nulls[pair.size][metric]) for pair, value in known.items()]
        adjusted = holm(chances) if chances else np.empty(0)
        for (pair, value), p, corrected in zip(known.items(), chances, adjusted.tolist(), strict=True):
            low, high = pair.interval(metric, seed)
            rows.append(Score(AGREEMENT, metric, value, low, high, p, corrected, arm=pair.name, against=pair.against))
        for name, ranking in by_name.items():
            if len(ranking) >= FEWEST_LAYERS:
                reach = float(np.quantile(nulls[len(ranking)][metric], 0.95))
                rows.append(Score(AGREEMENT, metric, 0.0, -reach, reach, arm=name, against=RANDOM_SCORE))
    return [*rows, *halves(losses, seed=seed)]


def halves(losses: Iterable[Loss], *, seed: int = 0) -> list[Score]:
    """How well each ablation of all layers ranks them alike on two halves of the documents, over random halvings.

    Interventions that lack a layer, and losses without the untouched model, have no row.
    """
    by_key: dict[str, list[Loss]] = {}
    for row in losses:
        by_key.setdefault(row.plan, []).append(row)
    arms = {key: match.groups() for key in by_key if (match := _KEY.fullmatch(key))}
    depth = 1 + max((int(layer) for layer, _ in arms.values()), default=-1)
    baseline = str(Plan.identity(depth)) if depth else ""
    rows: list[Score] = []
    for name in dict.fromkeys(name for _, name in arms.values()) if baseline in by_key else ():
        keys = [f"{layer}={name}" for layer in range(depth)]
        if depth >= FEWEST_LAYERS and all(len(by_key.get(key, ())) == len(by_key[baseline]) for key in keys):
            rows += _between_halves(ABLATIONS.get(name, name), [baseline, *keys], by_key, seed)
    return rows


def rank_correlations(metric: str, left: Numbers, right: Numbers) -> Numbers:
    """Row by row the rank correlation of two arrays of shape (rows, layers); not-a-number where a row does not vary.

    `spearman` is Pearson's correlation of mean ranks, `kendall` is tau-b; both allow for ties.

    >>> rank_correlations("kendall", np.array([[1.0, 2.0, 3.0]]), np.array([[1.0, 3.0, 2.0]])).round(3).tolist()
    [0.333]
    """
    seen, other = (centred_ranks(each) if metric == "spearman" else _orders(each) for each in (left, right))
    norms = np.sqrt(np.square(seen).sum(axis=1) * np.square(other).sum(axis=1))
    products = (seen * other).sum(axis=1)
    with np.errstate(invalid="ignore"):
        return np.asarray(np.clip(np.where(norms > 0, products, np.nan) / norms, -1.0, 1.0))


@dataclass(frozen=True, slots=True)
class _Pair:
    """Two scores, and what each says of the layers that both rank."""

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

    def value(self, metric: str) -> float:
        return float(rank_correlations(metric, np.array([self.left]), np.array([self.right]))[0])

    def interval(self, metric: str, seed: int) -> tuple[float, float]:
        """Percentiles over resampled layers, all pairs of a size with the same resamples."""
        drawn = np.random.default_rng([seed, self.size]).integers(0, self.size, size=(RESAMPLES, self.size))
        values = rank_correlations(metric, np.array(self.left)[drawn], np.array(self.right)[drawn])
        low, high = np.quantile(values[np.isfinite(values)], [0.025, 0.975])
        return float(low), float(high)


def _random_band(size: int, seed: int) -> dict[str, Numbers]:
    """How strongly random rankings of `size` layers agree with a fixed one: |correlation| of every draw, by metric."""
    if size < FEWEST_LAYERS:
        return {}
    draw = np.random.default_rng([seed, size, DRAWS])
    drawn = draw.permuted(np.tile(np.arange(size, dtype=np.float64), (DRAWS, 1)), axis=1)
    fixed = np.tile(np.arange(size, dtype=np.float64), (DRAWS, 1))
    return {metric: np.abs(rank_correlations(metric, fixed, drawn)) for metric in METRICS}


def _chance(value: float, null: Numbers) -> float:
    """The share of random rankings that agree, or disagree, as strongly.

    Rounding does not decide: ranks are halves of whole numbers and their sums are exact, so correlations that are equal
    are equal to the bit, also where ties make their norms another.
    """
    return float((1 + (null >= abs(value)).sum()) / (1 + null.size))


def _between_halves(name: str, keys: Sequence[str], by_key: dict[str, list[Loss]], seed: int) -> list[Score]:
    grid = arrange(row for key in keys for row in by_key[key])
    nll, tokens = grid.by_unit(grid.nll), grid.by_unit(grid.tokens)
    rows = [grid.plans.index(key) for key in keys]
    deltas = nll[rows[1:]] - nll[rows[0]]
    units = tokens.size
    if units < FEWEST_LAYERS:
        return []
    chosen = _halvings(units, seed)
    first, second = (half @ deltas.T / (half @ tokens)[:, None] for half in (chosen, 1.0 - chosen))
    scores = []
    for metric in METRICS:
        values = rank_correlations(metric, first, second)
        values = values[np.isfinite(values)]
        if values.size:
            low, high = (float(bound) for bound in np.quantile(values, [0.025, 0.975]))
            scores.append(
                Score(
                    AGREEMENT,
                    f"{metric}_halves",
                    float(values.mean()),
                    low,
                    high,
                    arm=name,
                    against=name,
                    documents=grid.documents(),
                    tokens=int(tokens.sum()),
                )
            )
    return scores


def _halvings(units: int, seed: int) -> Numbers:
    """Random halves of the units: (halvings, units) of 1.0 for those in the first half and 0.0 for the others."""
    order = np.random.default_rng([seed, units, HALVINGS]).permuted(np.tile(np.arange(units), (HALVINGS, 1)), axis=1)
    return np.asarray(order < units // 2, dtype=np.float64)


def _orders(values: Numbers) -> Numbers:
    """The order of every two layers, -1, 0 or 1: (rows, pairs of layers)."""
    first, second = np.triu_indices(values.shape[1], k=1)
    return np.asarray(np.sign(values[:, first] - values[:, second]))
