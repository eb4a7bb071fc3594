"""Find zones of depth: runs of similar hidden states, and their borders.

With A = -log cos of two states, which is additive along a random walk, expected steps are a parabola in log depth
(least absolute deviations). A zone is added when G grows more than in the null and cosine differs by `MARGIN`.
    Z(i, j) = log A(i, j) - log(sum of the expected steps from i to j) - median of the same at equal distance
    G(k) = max over partitions into k zones of the sum of Z(i, j) over the pairs i < j in different zones
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from layerwise.measure.stats.statistics import Numbers, Seed

LEVEL = 0.01

WALKS = 1_000
"""Walks without a further border that a partition is held against."""

LEAST_SPREAD = 0.1
"""The least spread of log steps: steps that differ by a tenth are no zones, however regular the rest is."""

MARGIN = 0.02
"""The least contrast of a border, in units of cosine."""

MOST_ZONES = 8
FEWEST_STATES = 10
"""Below this there are too few steps to know how much steps differ by chance."""

ROUNDS = 12

LEAST_COSINE = 0.02
"""Below this two states have nothing in common, whichever way they point."""

_TINY = 1e-9


@dataclass(frozen=True, slots=True)
class Zones:
    """A partition of the states 0..n-1: `borders` are the first states of the zones after the first.

    `p` is that of one or two more zones (corrected), `None` if no more fit; `contrasts` are differences of cosine.
    """

    states: int
    borders: tuple[int, ...]
    p: float | None
    contrasts: tuple[float, ...]

    @property
    def count(self) -> int:
        return len(self.borders) + 1

    @property
    def ranges(self) -> tuple[tuple[int, int], ...]:
        edges = (0, *self.borders, self.states)
        return tuple((first, last - 1) for first, last in pairwise(edges))


def find_zones(cosine: Numbers, *, seed: Seed = 0, walks: int = WALKS) -> Zones:
    """The zones of states whose mean cosines are `cosine`, (states, states); one zone for fewer than 10 states.

    >>> rows = np.arange(12)
    >>> alike = 0.5 + 0.4 * (rows[:, None] // 6 == rows // 6) + 0.1 * np.eye(12)
    >>> find_zones(alike).ranges
    ((0, 5), (6, 11))
    """
    states = len(cosine)
    if states < FEWEST_STATES:
        return Zones(states, (), None, ())
    chance = np.random.default_rng(seed)
    measured = _Measured.of(_log_distances(cosine)[None])
    borders: tuple[int, ...] = ()
    p: float | None = None
    while len(borders) + 1 < min(MOST_ZONES, states // 2):
        walked = _Measured.of(_walks(measured, borders, walks, chance))
        refused = []
        for count in (len(borders) + 2, len(borders) + 3):
            wanted = best_borders(measured.excess[0], count)
            if wanted is None:
                continue
            own, null = (each.gain(count, borders) for each in (measured, walked))
            corrected = min(1.0, 2 * float((1 + np.count_nonzero(null >= own[0])) / (1 + walks)))
            if own[0] > 0 and corrected <= LEVEL and min(contrasts(cosine, wanted)) >= MARGIN:
                borders = wanted
                break
            refused.append(corrected)
        else:
            p = min(refused, default=None)
            break
    return Zones(states, borders, p, contrasts(cosine, borders))


def contrasts(cosine: Numbers, borders: Sequence[int]) -> tuple[float, ...]:
    return tuple(float((weights * cosine).sum()) for weights in contrast_weights(len(cosine), borders))


def contrast_weights(states: int, borders: Sequence[int]) -> list[Numbers]:
    """For every border the weights of the pairs of states, (states, states), that give its contrast."""
    edges = (0, *borders, states)
    return [_weights(states, *edges[at : at + 3]) for at in range(len(borders))]


def beyond_walks(cosine: Numbers, count: int = 3, *, seed: Seed = 0, walks: int = 100) -> tuple[float, float, float]:
    """Return by how much the smallest contrast of the best `count` zones exceeds the mean of the random-walk null.

    The interval includes the spread of the null. NaN for too few states.
    """
    if len(cosine) < FEWEST_STATES:
        return (np.nan, np.nan, np.nan)
    measured = _Measured.of(_log_distances(cosine)[None])
    distances = _walks(measured, (), walks, np.random.default_rng(seed))
    (own,) = _least_contrasts(cosine[None], measured, count)
    null = _least_contrasts(np.exp(-np.exp(distances)), _Measured.of(distances), count)
    value = float(own - null.mean())
    reach = 1.96 * float(null.std(ddof=1)) * np.sqrt(1 + 1 / walks)
    return value, value - reach, value + reach


def _least_contrasts(cosine: Numbers, measured: _Measured, count: int) -> Numbers:
    borders = _best(measured.table, count)
    return np.array([min(contrasts(own, edges)) for own, edges in zip(cosine, borders.tolist(), strict=True)])


@lru_cache(maxsize=256)
def _weights(states: int, first: int, border: int, stop: int) -> Numbers:
    rows, columns = np.triu_indices(stop - first, 1)
    across = (rows < border - first) & (columns >= border - first)
    weights = np.zeros((states, states))
    shared = 0
    for distance in range(1, stop - first):
        here = columns - rows == distance
        inside, outside = here & ~across, here & across
        if not inside.any() or not outside.any():
            continue
        shared += 1
        for pairs, sign in ((inside, 1.0), (outside, -1.0)):
            weights[first + rows[pairs], first + columns[pairs]] += sign / np.count_nonzero(pairs)
    weights /= max(1, shared)
    weights.flags.writeable = False
    return weights


def best_borders(excess: Numbers, count: int) -> tuple[int, ...] | None:
    """The borders of the partition into `count` zones that separates the most `excess`, (states, states)."""
    table = _segments(excess[None])
    if not np.isfinite(_least(table, count)[0][0]):
        return None
    return tuple(_best(table, count)[0].tolist())


def _best(table: Numbers, count: int) -> NDArray[np.intp]:
    choices = _least(table, count)[1]
    rows = np.arange(len(table))
    stops = [np.full(len(table), table.shape[1])]
    for zone in range(count - 1, 0, -1):
        stops.append(choices[zone][rows, stops[-1]])
    return np.stack(stops[:0:-1], axis=1)


@dataclass(frozen=True, slots=True)
class _Measured:
    """Distances without their decay, for `many` matrices: `excess` (many, states, states), symmetric.

    `table` (many, states, states + 1) is the excess within runs of states, see `_segments`; `trend` (many, steps) are
    the expected log steps, `residual` (many, steps) the measured ones minus these.
    """

    excess: Numbers
    table: Numbers
    trend: Numbers
    residual: Numbers

    @classmethod
    def of(cls, distances: Numbers) -> _Measured:
        states = distances.shape[-1]
        steps = np.diagonal(distances, 1, 1, 2)
        trend = _trend(steps)
        path = np.concatenate([np.zeros((len(trend), 1)), np.cumsum(np.exp(trend), axis=1)], axis=1)
        excess = np.zeros_like(distances)
        for distance in range(1, states):
            rows = np.arange(states - distance)
            walked = np.log(path[:, rows + distance] - path[:, rows])
            values = distances[:, rows, rows + distance] - walked
            values = values - np.median(values, axis=1, keepdims=True)
            excess[:, rows, rows + distance] = excess[:, rows + distance, rows] = values
        return cls(excess, _segments(excess), trend, steps - trend)

    def spread(self, borders: Sequence[int]) -> Numbers:
        kept = np.delete(self.residual, [border - 1 for border in borders], axis=1)
        centred = np.abs(kept - np.median(kept, axis=1, keepdims=True))
        return np.maximum(1.4826 * np.median(centred, axis=1), LEAST_SPREAD)

    def gain(self, count: int, borders: tuple[int, ...]) -> Numbers:
        more, fewer = (_least(self.table, zones)[0] for zones in (count, len(borders) + 1))
        return np.asarray((fewer - more) / self.spread(borders))


def _log_distances(cosine: Numbers) -> Numbers:
    return np.asarray(np.log(np.maximum(-np.log(np.clip(cosine, LEAST_COSINE, 1.0)), _TINY)))


def _trend(steps: Numbers) -> Numbers:
    """Fit log steps by a parabola in log depth (least absolute deviations, iterated reweighting), (many, steps)."""
    depth = np.log(np.arange(steps.shape[1]) + 1.5)
    basis = np.stack([depth**power for power in range(3)], axis=1)
    basis = np.linalg.qr(basis)[0]
    products = (basis[:, :, None] * basis[:, None, :]).reshape(-1, 9)
    weights = np.ones_like(steps)
    for _ in range(ROUNDS):
        normal = (weights @ products).reshape(-1, 3, 3) + _TINY * np.eye(3)
        factors = np.linalg.solve(normal, ((weights * steps) @ basis)[:, :, None])[:, :, 0]
        weights = 1 / np.maximum(np.abs(steps - factors @ basis.T), LEAST_SPREAD / 10)
    return np.asarray(factors @ basis.T)


def _walks(measured: _Measured, borders: tuple[int, ...], walks: int, chance: np.random.Generator) -> Numbers:
    states = measured.excess.shape[-1]
    spread = measured.spread(borders)[0]
    steps = spread * chance.standard_normal((walks, states - 1))
    for border in borders:
        steps[:, border - 1] = measured.residual[0, border - 1]
    lengths = np.exp(measured.trend[0] + steps)
    path = np.concatenate([np.zeros((walks, 1)), np.cumsum(lengths, axis=1)], axis=1)
    return np.asarray(np.log(np.maximum(np.abs(path[:, :, None] - path[:, None, :]), _TINY)))


def _segments(excess: Numbers) -> Numbers:
    many, states, _ = excess.shape
    table = np.zeros((many, states, states + 1))
    below = np.cumsum(np.triu(np.ones((states, states)), 1) * excess, axis=1)  # of rows 0..r, by column
    for stop in range(2, states + 1):
        column = below[:, stop - 1, stop - 1]
        before = np.concatenate([np.zeros((many, 1)), below[:, : stop - 1, stop - 1]], axis=1)
        table[:, :stop, stop] = table[:, :stop, stop - 1] + column[:, None] - before[:, :stop]
    return table


def _least(table: Numbers, count: int) -> tuple[Numbers, list[Numbers]]:
    many, states, _ = table.shape
    least = table[:, 0, :].copy()
    least[:, 0] = np.inf
    choices = [np.zeros((many, states + 1), dtype=int)]
    for zone in range(1, count):
        through = np.full((many, states + 1), np.inf)
        begins = np.zeros((many, states + 1), dtype=int)
        shortest = 1 if zone in (0, count - 1) else 2
        for stop in range(zone, states + 1):
            starts = np.arange(0, stop - shortest + 1)
            if starts.size:
                totals = least[:, starts] + table[:, starts, stop]
                begins[:, stop] = starts[totals.argmin(axis=1)]
                through[:, stop] = totals.min(axis=1)
        least = through
        choices.append(begins)
    return least[:, states], choices
