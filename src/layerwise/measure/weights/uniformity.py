"""Are learned layer weights uniform? The distance of each row from equal shares, over seeds, beside its start.

A layer that weighs all its sources alike has learned no preference: that is how layer weights fail. The distance of a
row alpha of n sources is the weight that would have to be moved to make it uniform,

    distance = 1/2 sum_i |alpha_i - 1/n|        0 for equal shares, 1 - 1/n for one source alone

and what counts is 0.05, one twentieth of the weight (`MARGIN`), stated beforehand: no trained row is uniform to the
last digit, so "uniform" is an equivalence and "not uniform" takes more than noise. Of each arm there are rows of
measure `uniformity`, by reader (`layer`, or the output), and of no reader the mean over those of two sources or more:

    distance    the mean over seeds, Student's interval, the one-sided p against at most `MARGIN`, Holm over readers
    start       the distance before the first step
    learned     distance - start, Student's interval and two-sided p, Holm over readers
    entropy     the mean over seeds of -sum alpha log alpha / log n: 1 for equal shares

A row that began far from uniform may stay so without having learned anything: only `learned` says that it moved.
Weights of any sign (denseformer) are no shares and have no rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from layerwise.measure.stats.seeds import seed_difference
from layerwise.measure.stats.statistics import Numbers, holm_by_key
from layerwise.results.rows import Score
from layerwise.results.vocabulary import OUTPUT, UNIFORMITY

MARGIN = 0.05

Reader = tuple[int | None, str | None]
"""The columns `layer` and `part` of a reader; both are empty for the mean over readers."""


def distances(weights: ArrayLike) -> Numbers:
    """The distance of every row from equal shares: (..., readers, sources) -> (..., readers).

    Reader n has n + 1 sources, and a mixed output as many as there are columns.
    Cells beyond a reader's sources are not looked at. Distances are rounded to twelve digits, so that equal rows have
    equal ones.

    >>> distances([[1.0, 0.0], [0.5, 0.5]]).tolist(), distances([[1.0, 0.0], [0.9, 0.1]]).round(6).tolist()
    ([0.0, 0.0], [0.0, 0.4])
    """
    values = np.asarray(weights, dtype=np.float64)
    counts, read = _sources(*values.shape[-2:])
    return np.asarray(np.round(0.5 * (np.abs(values - 1.0 / counts[:, None]) * read).sum(axis=-1), 12))


def uniformity_rows(arm: str, alphas: ArrayLike, initial: ArrayLike) -> list[Score]:
    """The rows of one arm: `alphas` (seeds, readers, sources) of sum one, `initial` (readers, sources) at the start.

    One seed has values without intervals; a stack without a reader of two sources has no rows.
    """
    weights = np.asarray(alphas, dtype=np.float64)
    first = np.asarray(initial, dtype=np.float64)
    depth = weights.shape[2] - 1
    readers = range(1, weights.shape[1])
    if not readers:
        return []
    own, start, entropy = distances(weights)[:, 1:], distances(first)[1:], _entropies(weights)[:, 1:]
    columns: dict[Reader, int] = {
        (reader, None) if reader < depth else (None, OUTPUT): at for at, reader in enumerate(readers)
    }
    rows = _rows(arm, {name: (own[:, at], float(start[at]), entropy[:, at]) for name, at in columns.items()})
    means = np.round(own.mean(axis=1), 12), round(float(start.mean()), 12), entropy.mean(axis=1)
    return rows + _rows(arm, {(None, None): means})


def _rows(arm: str, values: dict[Reader, tuple[Numbers, float, Numbers]]) -> list[Score]:
    """The rows of several readers, whose p are corrected together."""
    tests = {
        name: (_above(own, MARGIN), _above(own, start, two_sided=True)) for name, (own, start, _) in values.items()
    }
    adjusted = [holm_by_key({name: pair[at][3] for name, pair in tests.items()}) for at in (0, 1)]
    rows = []
    for name, (own, start, entropy) in values.items():
        (_, low, high, p), (gap, below, above, moved) = tests[name]
        distance = float(own.mean())
        low = None if low is None else max(0.0, low)
        of: dict[str, Any] = {"arm": arm, "layer": name[0], "part": name[1]}
        rows += [
            Score(UNIFORMITY, "distance", distance, low, high, p, p_adjusted=adjusted[0].get(name), **of),
            Score(UNIFORMITY, "start", start, **of),
            Score(UNIFORMITY, "learned", gap, below, above, moved, p_adjusted=adjusted[1].get(name), **of),
            Score(UNIFORMITY, "entropy", float(entropy.mean()), **of),
        ]
    return rows


def _above(
    values: Numbers, base: float, *, two_sided: bool = False
) -> tuple[float, float | None, float | None, float | None]:
    """The mean over seeds above `base` with its interval and p; the interval is of the mean itself where one-sided."""
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
    own = -(weights * read * logs).sum(axis=-1)
    return np.asarray(np.divide(own, np.log(counts), out=np.ones_like(own), where=counts > 1))


def _sources(readers: int, columns: int) -> tuple[Numbers, np.typing.NDArray[np.bool_]]:
    """How many sources each reader has, (readers,), and which cells are read, (readers, sources)."""
    counts = np.minimum(np.arange(readers) + 1, columns).astype(np.float64)
    return counts, np.arange(columns)[None, :] < counts[:, None]
