"""Statistics of learned layer weights: agreement of seeds, groups of layers, distance from equal weights.

Layer weights are a matrix alpha (readers, sources). Reader n is the input of layer n, or the output of the model after
the last layer. It is a weighted sum of the sources 0..n: the embedding (0) and the output of each layer k (k + 1).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from layerwise.errors import MeasureError
from layerwise.measure.stats.correlation import normalize_ranks
from layerwise.measure.stats.seeds import seed_difference
from layerwise.measure.stats.statistics import Numbers, holm_by_key
from layerwise.plan import Edge, LayerWeights
from layerwise.results.rows import Score
from layerwise.results.vocabulary import (
    ALPHA,
    BEYOND_DISTANCE,
    BEYOND_START,
    OUTPUT,
    SEED_AGREEMENT,
    SHUFFLED,
    UNIFORMITY,
)

Label = Literal["surface", "linguistic"]

MIN_SOURCES = 3
"""Minimum number of sources of a reader for a correlation."""

DRAWS = 2_000

MIN_CHANGE = 1e-6
"""Deviations below this value are float32 rounding errors, which all seeds share."""

_TIES = 1e-9
_BLOCK = 250


@dataclass(frozen=True, slots=True)
class SeedAgreement:
    """A statistic, the mean (`chance`) and 95 % range of its null distribution, and its one-sided p-value."""

    value: float
    chance: float
    low: float
    high: float
    p: float


def edge_columns(edge: Edge, depth: int) -> dict[str, Any]:
    """Return the columns of a result row about an edge, that is, a layer weight, in a model of `depth` layers.

    >>> edge_columns(Edge(3, 0), 12), edge_columns(Edge(12, 5), 12)
    ({'layer': 3, 'source': 0}, {'part': 'output', 'source': 5})
    """
    reader = {"part": OUTPUT} if edge.reader == depth else {"layer": edge.reader}
    return {**reader, "source": edge.source}


def alpha_rows(variant: str, seed: int | None, edges: LayerWeights) -> list[Score]:
    return [
        Score(ALPHA, "weight", weight, variant=variant, seed=seed, **edge_columns(Edge(reader, source), edges.depth))
        for reader, row in enumerate(edges.matrix())
        for source, weight in enumerate(row[: reader + 1])
    ]


def seed_agreement(
    alphas: ArrayLike, *, initial: ArrayLike | None = None, draws: int = DRAWS, seed: int = 0
) -> SeedAgreement:
    """Compute the mean rank correlation of layer weights `alphas` between seeds, and test it.

    The weights (seeds, readers, sources) say how much each reader, a layer or the output, takes from each source. The
    mean is over pairs of seeds and over readers with at least three sources. If `initial` weights (readers, sources)
    are given, the seeds' deviations from them are compared: log(alpha / initial) if all weights are positive, otherwise
    alpha - initial. The null distribution permutes the sources in the same way for all readers of a seed, because
    readers are not independent (Mantel 1967).
    """
    weights = np.asarray(alphas, dtype=np.float64)
    ranks, readable = _rank(weights if initial is None else _changes(weights, np.asarray(initial, dtype=np.float64)))
    observed = float(_agreement(ranks[None], readable[None])[0])
    generator = np.random.default_rng(seed)
    sizes = (min(_BLOCK, draws - start) for start in range(0, draws, _BLOCK))
    null = [_agreement(*_permute(ranks, readable, size, generator)) for size in sizes]
    return _compare_with_null(observed, np.concatenate(null))


def group_agreement(
    alphas: ArrayLike,
    labels: Sequence[Label | None],
    *,
    beyond_distance: bool = False,
    draws: int = DRAWS,
    seed: int = 0,
) -> SeedAgreement:
    """Compute the mean layer weight within groups of layers minus that across groups, and test it.

    The weights `alphas` (seeds, readers, sources), as in `seed_agreement`, are first divided by equal weights. `labels`
    has the group of each layer or None, and the embedding counts as surface. The null distribution shuffles the labels.
    If `beyond_distance`, the mean over all pairs (reader, source) at the same distance is subtracted first.
    """
    pairs = _preference(np.asarray(alphas, dtype=np.float64).mean(axis=0), beyond_distance)
    signs = np.array([1.0 if label == "surface" else -1.0 if label else 0.0 for label in labels])
    generator = np.random.default_rng(seed)
    grouped = np.flatnonzero(signs)
    shuffled = np.tile(signs, (draws, 1))
    shuffled[:, grouped] = generator.permuted(shuffled[:, grouped], axis=1)
    return _compare_with_null(float(_contrast(pairs, signs[None])[0]), _contrast(pairs, shuffled))


def hypothesized_groups(depth: int) -> tuple[Label | None, ...]:
    """Scale the paper's groups to `depth`: the first 5 of 12 layers are surface, the next 5 linguistic.

    >>> hypothesized_groups(6)
    ('surface', 'surface', 'surface', 'linguistic', 'linguistic', None)
    """
    first, last = (int(share * depth / 12 + 0.5) for share in (5, 10))
    return tuple("surface" if n < first else "linguistic" if n < last else None for n in range(depth))


def seed_agreement_scores(
    variant: str, alphas: ArrayLike, *, initial: ArrayLike | None = None, draws: int = DRAWS, seed: int = 0
) -> list[Score]:
    """Return the rows of `seed_agreement` and `group_agreement` for one variant, with their null distributions.

    `correlation` compares seeds, and if `initial` is given, also their deviations from it. `contrast` compares groups
    of layers, also with the effect of distance removed. Statistics for which there are too few seeds or layers are
    omitted. Raises `MeasureError` if weights are not finite.
    """
    weights = np.asarray(alphas, dtype=np.float64)
    if not np.isfinite(weights).all():
        raise MeasureError("Layer weights must be finite, got NaN or infinity. Check the training run.")
    labels = hypothesized_groups(weights.shape[2] - 1)
    rows: list[Score] = []
    if len(weights) > 1 and weights.shape[1] >= MIN_SOURCES:
        rows += _rows(variant, None, "correlation", seed_agreement(weights, draws=draws, seed=seed))
        if initial is not None:
            changes = seed_agreement(weights, initial=initial, draws=draws, seed=seed)
            rows += _rows(variant, BEYOND_START, "correlation", changes)
    if {"surface", "linguistic"} <= set(labels):
        rows += _rows(variant, None, "contrast", group_agreement(weights, labels, draws=draws, seed=seed))
        beyond = group_agreement(weights, labels, beyond_distance=True, draws=draws, seed=seed)
        rows += _rows(variant, BEYOND_DISTANCE, "contrast", beyond)
    return rows


def weights_by_seed(scores: Iterable[Score], variant: str) -> Numbers:
    """Return the layer weights (seeds, readers, sources) of a variant from rows of measure `alpha`, or else 0."""
    cells: dict[int, dict[tuple[int | None, int], float]] = {}
    for score in scores:
        if (score.measure, score.variant) == (ALPHA, variant) and score.seed is not None and score.source is not None:
            cells.setdefault(score.seed, {})[score.layer, score.source] = score.value
    readers = {reader for edges in cells.values() for reader, _ in edges}
    depth = 1 + max((reader for reader in readers if reader is not None), default=-1)
    weights = np.zeros((len(cells), depth + (None in readers), depth + 1))
    for number, edges in enumerate(cells.values()):
        for (reader, source), value in edges.items():
            weights[number, depth if reader is None else reader, source] = value
    return weights


def _readable(readers: int, sources: int) -> NDArray[np.bool_]:
    row, source = np.arange(readers)[:, None], np.arange(sources)[None, :]
    return np.asarray((source <= row) & (row >= MIN_SOURCES - 1))


def _changes(weights: Numbers, initial: Numbers) -> Numbers:
    unchanged = np.abs(weights - initial) < MIN_CHANGE
    read = _readable(*initial.shape)
    if (weights[:, read] > 0.0).all() and (initial[read] > 0.0).all():
        ratio = np.divide(weights, initial, out=np.ones_like(weights), where=read)
        return np.where(unchanged, 0.0, np.log(ratio, out=np.zeros_like(ratio), where=read))
    return np.where(unchanged, 0.0, weights - initial)


def _rank(weights: Numbers) -> tuple[Numbers, NDArray[np.bool_]]:
    read = np.broadcast_to(_readable(*weights.shape[1:]), weights.shape)
    ranks = np.zeros_like(weights)
    for row in range(MIN_SOURCES - 1, weights.shape[1]):
        ranks[:, row, : row + 1] = normalize_ranks(weights[:, row, : row + 1])
    return ranks, read


def _agreement(ranks: Numbers, read: NDArray[np.bool_]) -> Numbers:
    mask = np.moveaxis(read, 1, 2).astype(ranks.dtype)  # (draws, readers, seeds, sources)
    values = np.moveaxis(ranks, 1, 2) * mask
    others = mask.swapaxes(2, 3)
    squares = np.square(values) @ others  # over the sources that two seeds share
    norms = np.sqrt(squares * squares.swapaxes(2, 3))
    products = values @ values.swapaxes(2, 3)
    correlations = np.divide(products, norms, out=np.zeros_like(products), where=norms > 0.0)
    enough = mask @ others >= MIN_SOURCES
    pairs = (correlations * enough).sum(axis=1) / np.maximum(enough.sum(axis=1), 1)
    return np.asarray(pairs[:, *np.tril_indices(ranks.shape[1], -1)].mean(axis=1))


def _permute(
    ranks: Numbers, read: NDArray[np.bool_], draws: int, generator: np.random.Generator
) -> tuple[Numbers, NDArray[np.bool_]]:
    shape = (draws, *ranks.shape)
    keys = np.broadcast_to(generator.random((*shape[:2], 1, shape[3])), shape).copy()
    keys[:, 0] = np.arange(shape[3])
    order = keys.argsort(axis=3)
    return (
        np.take_along_axis(np.broadcast_to(ranks, shape), order, axis=3),
        np.take_along_axis(np.broadcast_to(read, shape), order, axis=3),
    )


def _preference(weights: Numbers, beyond_distance: bool) -> Numbers:
    depth = weights.shape[1] - 1
    read = _readable(depth, depth + 1)
    pairs = np.where(read, weights[:depth] * (1.0 + np.arange(depth))[:, None], np.nan)
    if beyond_distance:
        distance = np.arange(depth)[:, None] - np.arange(depth + 1)[None, :]
        for apart in np.unique(distance[read]):
            along = read & (distance == apart)
            pairs[along] -= pairs[along].mean()
    return pairs


def _contrast(pairs: Numbers, signs: Numbers) -> Numbers:
    sources = np.concatenate([np.ones((len(signs), 1)), signs], axis=1)
    kinds = signs[:, :, None] * sources[:, None, :] * np.isfinite(pairs)
    values = np.nan_to_num(pairs)
    within, across = (
        (values * (kinds == sign)).sum(axis=(1, 2)) / np.maximum((kinds == sign).sum(axis=(1, 2)), 1)
        for sign in (1.0, -1.0)
    )
    return np.asarray(within - across)


def _compare_with_null(observed: float, null: Numbers) -> SeedAgreement:
    reached = int((null >= observed - _TIES).sum())
    low, high = np.quantile(null, [0.025, 0.975])
    return SeedAgreement(observed, float(null.mean()), float(low), float(high), (1 + reached) / (1 + len(null)))


def _rows(variant: str, condition: str | None, metric: str, agreement: SeedAgreement) -> list[Score]:
    chance = (agreement.chance, agreement.low, agreement.high)
    return [
        Score(SEED_AGREEMENT, metric, agreement.value, p=agreement.p, variant=variant, condition=condition),
        Score(SEED_AGREEMENT, metric, *chance, variant=variant, condition=condition, against=SHUFFLED),
    ]


MARGIN = 0.05
"""Maximum distance from equal weights at which the weights of a layer count as uniform."""

Reader = tuple[int | None, str | None]
"""The columns `layer` and `part` of a reader; both are None for the mean over readers."""


def uniformity_distances(weights: ArrayLike) -> Numbers:
    """Return how far each layer's weights are from equal weights, 1/2 sum_i |alpha_i - 1/n|, rounded to 12 digits.

    Weights (..., readers, sources) give distances (..., readers). Reader n (layer n, or the output) reads the
    first n + 1 sources, or all of them if there are fewer; its other weights are ignored.

    >>> uniformity_distances([[1.0, 0.0], [0.9, 0.1]]).round(6).tolist()
    [0.0, 0.4]
    """
    values = np.asarray(weights, dtype=np.float64)
    counts, read = _sources(*values.shape[-2:])
    return np.asarray(np.round(0.5 * (np.abs(values - 1.0 / counts[:, None]) * read).sum(axis=-1), 12))


def uniformity_rows(variant: str, alphas: ArrayLike, initial: ArrayLike) -> list[Score]:
    """Compare the weights of one variant with equal weights; return rows for each reader and for their mean.

        distance    1/2 sum_i |alpha_i - 1/n|, mean over seeds; the p-value tests whether it exceeds `MARGIN`
        start       the distance of the `initial` weights (readers, sources)
        learned     distance - start, with a two-sided p-value
        entropy     -sum alpha log alpha / log n, which is 1 for equal weights

    `alphas` (seeds, readers, sources) must be positive and sum to one over sources. Intervals are Student t intervals
    over seeds (none for a single seed), and p-values are Holm-corrected over readers.
    """
    weights = np.asarray(alphas, dtype=np.float64)
    first = np.asarray(initial, dtype=np.float64)
    depth = weights.shape[2] - 1
    readers = range(1, weights.shape[1])
    if not readers:
        return []
    distance, start = uniformity_distances(weights)[:, 1:], uniformity_distances(first)[1:]
    entropy = _entropies(weights)[:, 1:]
    columns: dict[Reader, int] = {
        (reader, None) if reader < depth else (None, OUTPUT): at for at, reader in enumerate(readers)
    }
    by_reader = {name: (distance[:, at], float(start[at]), entropy[:, at]) for name, at in columns.items()}
    means = np.round(distance.mean(axis=1), 12), round(float(start.mean()), 12), entropy.mean(axis=1)
    return _reader_rows(variant, by_reader) + _reader_rows(variant, {(None, None): means})


def _reader_rows(variant: str, values: dict[Reader, tuple[Numbers, float, Numbers]]) -> list[Score]:
    tests = {
        name: (_test_above(distances, MARGIN), _test_above(distances, start, two_sided=True))
        for name, (distances, start, _) in values.items()
    }
    adjusted = [holm_by_key({name: pair[at][3] for name, pair in tests.items()}) for at in (0, 1)]
    rows = []
    for name, (distances, start, entropy) in values.items():
        (_, low, high, p), learned = tests[name]
        distance = float(distances.mean())
        low = None if low is None else max(0.0, low)
        columns: dict[str, Any] = {"variant": variant, "layer": name[0], "part": name[1]}
        rows += [
            Score(UNIFORMITY, "distance", distance, low, high, p, p_adjusted=adjusted[0].get(name), **columns),
            Score(UNIFORMITY, "start", start, **columns),
            Score(UNIFORMITY, "learned", *learned, p_adjusted=adjusted[1].get(name), **columns),
            Score(UNIFORMITY, "entropy", float(entropy.mean()), **columns),
        ]
    return rows


def _test_above(
    values: Numbers, base: float, *, two_sided: bool = False
) -> tuple[float, float | None, float | None, float | None]:
    difference = seed_difference(dict(enumerate(values.tolist())), dict.fromkeys(range(len(values)), base))
    if difference.low is None or difference.high is None or difference.p is None:
        return difference.value, None, None, None
    if two_sided:
        return difference.value, difference.low, difference.high, difference.p
    p = difference.p / 2 if difference.value > 0 else 1 - difference.p / 2
    return difference.value, difference.low + base, difference.high + base, p


def _entropies(weights: Numbers) -> Numbers:
    counts, read = _sources(*weights.shape[-2:])
    logs = np.log(np.where(read & (weights > 0), weights, 1.0))
    entropies = -(weights * read * logs).sum(axis=-1)
    return np.asarray(np.divide(entropies, np.log(counts), out=np.ones_like(entropies), where=counts > 1))


def _sources(readers: int, columns: int) -> tuple[Numbers, NDArray[np.bool_]]:
    counts = np.minimum(np.arange(readers) + 1, columns).astype(np.float64)
    return counts, np.arange(columns)[None, :] < counts[:, None]
