"""Similarity, variance and zones of hidden states under a plan (Sun et al. 2024, arXiv 2407.09298, figure 15)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from layerwise.data.batches import AnyBatch
from layerwise.errors import MeasureError
from layerwise.measure.activations.padding import check_finite, run_states
from layerwise.measure.activations.similarity import find_sinks
from layerwise.measure.contrasts.contrast import Part, Resampled, take_first
from layerwise.measure.stats.float64 import widen
from layerwise.measure.stats.grid import MIN_UNITS
from layerwise.measure.stats.statistics import Numbers, Seed, student_interval
from layerwise.measure.stats.window_sums import WindowSums
from layerwise.plan import Plan
from layerwise.results.rows import Score
from layerwise.results.vocabulary import STATES, ZONES
from layerwise.stack import Stack
from layerwise.stack.inputs import evaluating

RESAMPLES = 1_000


@dataclass(frozen=True, slots=True)
class PlanStates:
    """Sums over the tokens of each document or window: `cosine` (units, states, states), `variance` (units, states)."""

    cosine: Numbers
    variance: Numbers
    tokens: Numbers
    documents: int

    @property
    def mean_cosine(self) -> Numbers:
        return np.asarray(self.cosine.sum(axis=0) / self.tokens.sum())

    def part(self, weights: Numbers) -> Part:
        return Part(np.tensordot(self.cosine, weights, 2)[None], self.tokens, self.documents, int(self.tokens.sum()))


def plan_states(stack: Stack, plan: Plan, batches: Iterable[AnyBatch]) -> PlanStates:
    """Accumulate the similarity of the states after every stage of `plan`, where a parallel group is one stage.

    Attention sinks are excluded (appendix A.4). Raises `MeasureError` if states are not finite or no tokens remain.
    """
    stages = _stage_ends(plan)
    sums = WindowSums()
    with evaluating(stack.model), torch.inference_mode():
        for batch in batches:
            states, counted = run_states(stack, plan, batch)
            ends = [states[0], *(states[1 + step] for step in stages)]
            check_finite(ends, counted, [window.document for window in batch.windows], under=f" under {plan}")
            mask = counted & ~find_sinks(ends, counted)
            rows = [row for row in range(len(batch.windows)) if mask[row].any()]
            if rows:
                parts = [_row_sums([state[row][mask[row]] for state in ends[1:]]) for row in rows]
                sums.add(torch.stack(parts, dim=1), mask.sum(dim=1)[rows], [batch.windows[row] for row in rows])
    if not sums.documents:
        raise MeasureError("The text must have tokens other than attention sinks and padding. Use a longer text.")
    totals, tokens_of_units = sums.units()
    count = len(stages)
    cosine, variance = totals[: count * count], totals[count * count :]
    return PlanStates(cosine.T.reshape(-1, count, count), variance.T, tokens_of_units, sums.documents)


def plan_state_rows(states: PlanStates, plan: Plan) -> Iterator[Score]:
    """Yield rows of measure `plan_states`: the mean cosine of every pair of states, and the variance of every state.

    State 1 is the state after the first stage of the plan. Student t intervals need at least 8 documents or windows.
    """
    count = states.cosine.shape[1]
    pairs = [(i, j) for i in range(count) for j in range(i + 1, count)]
    rows, columns = np.array(pairs, dtype=int).reshape(-1, 2).T
    names: list[tuple[str, int, int | None]] = [("cosine", i + 1, j + 1) for i, j in pairs]
    names += [("variance", j + 1, None) for j in range(count)]
    sums = np.concatenate([states.cosine[:, rows, columns], states.variance], axis=1).T
    values = sums.sum(axis=1) / states.tokens.sum()
    estimate = student_interval(sums, states.tokens) if len(states.tokens) >= MIN_UNITS else None
    about: dict[str, Any] = {"plan": str(plan), "documents": states.documents, "tokens": int(states.tokens.sum())}
    for at, (metric, state, other) in enumerate(names):
        low, high = (None, None) if estimate is None else (float(estimate.low[at]), float(estimate.high[at]))
        yield Score(STATES, metric, float(values[at]), low, high, state=state, to_state=other, **about)


def zone_rows(states: PlanStates, plan: Plan, *, seed: Seed = 0) -> list[Score]:
    """Return rows of measure `zones`: the number of zones, the p-value for more zones, and each border's contrast.

    A border is the first state of a zone, counted from 1. Its contrast is the mean cosine within the two adjacent zones
    minus that between them, over pairs of states that are equally far apart.
    """
    zones = find_zones(states.mean_cosine, seed=seed)
    if zones.states < MIN_STATES:
        return []
    columns: dict[str, Any] = {"plan": str(plan), "documents": states.documents, "tokens": int(states.tokens.sum())}
    scores = [Score(ZONES, "zones", float(zones.count), **columns)]
    if zones.p is not None:
        scores.append(Score(ZONES, "p", zones.p, **columns))
    for border, weights in zip(zones.borders, contrast_weights(zones.states, zones.borders), strict=True):
        drawn = Resampled.from_parts([states.part(weights)], seed=seed, resamples=RESAMPLES)
        each = drawn.row(ZONES, "contrast", take_first)
        scores.append(Score(ZONES, "border", float(border + 1), state=border + 1, **columns))
        scores.append(Score(ZONES, "contrast", each.value, each.low, each.high, state=border + 1, **columns))
    return scores


def _row_sums(states: Sequence[Tensor]) -> Tensor:
    vectors = torch.stack([widen(state.flatten(1)) for state in states])
    by_token = functional.normalize(vectors, dim=2, eps=torch.finfo(vectors.dtype).tiny).transpose(0, 1)
    cosines = (by_token @ by_token.transpose(1, 2)).clamp_(-1, 1).sum(dim=0)
    return torch.cat([cosines.flatten(), vectors.var(dim=2, unbiased=False).sum(dim=1)])


def _stage_ends(plan: Plan) -> list[int]:
    ends, open_groups = [], 0
    for number, step in enumerate(plan.steps()):
        open_groups += step.opens
        # A close that is not the last of its group passes the state on to the next branch.
        open_groups -= sum(close is not None for close in step.closes)
        if open_groups == 0:
            ends.append(number)
    return ends


LEVEL = 0.01

WALKS = 1_000
"""Number of random walks that the zones are compared with."""

MIN_SPREAD = 0.1
"""Minimum spread of log steps, so that steps that differ by a tenth are not borders."""

MARGIN = 0.02
"""Minimum contrast of a border, as a difference of cosines."""

MAX_ZONES = 8
MIN_STATES = 10
"""Minimum number of states. With fewer, the random variation of steps cannot be estimated."""

ROUNDS = 12

MIN_COSINE = 0.02
"""Cosines below this value are clipped to it."""

_TINY = 1e-9


@dataclass(frozen=True, slots=True)
class Zones:
    """A partition of the states 0..n-1 into zones; `borders` are the first states of all zones but the first.

    `p` is the smaller corrected p-value of the tests for one and for two more zones, or None if neither was possible.
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
    """Find zones of similar hidden states from their mean cosines (states, states).

    A = -log cos of two states is additive along a random walk. The expected size of a step is a parabola in log depth,
    fitted by least absolute deviations. Zones are added while G grows more than in the random-walk null and all borders
    have a contrast of at least `MARGIN`. Fewer than 10 states are a single zone.

        Z(i, j) = log A(i, j) - log(sum of the expected steps from i to j) - median of the same at equal distance
        G(k) = max over partitions into k zones of the sum of Z(i, j) over the pairs i < j in different zones

    >>> rows = np.arange(12)
    >>> alike = 0.5 + 0.4 * (rows[:, None] // 6 == rows // 6) + 0.1 * np.eye(12)
    >>> find_zones(alike).ranges
    ((0, 5), (6, 11))
    """
    states = len(cosine)
    if states < MIN_STATES:
        return Zones(states, (), None, ())
    chance = np.random.default_rng(seed)
    measured = _ZoneDistances.from_logs(_log_distances(cosine)[None])
    borders: tuple[int, ...] = ()
    p: float | None = None
    while len(borders) + 1 < min(MAX_ZONES, states // 2):
        walked = _ZoneDistances.from_logs(_draw_walks(measured, borders, walks, chance))
        refused = []
        for count in (len(borders) + 2, len(borders) + 3):
            candidate = best_borders(measured.excess[0], count)
            if candidate is None:
                continue
            gain, null = (each.gain(count, borders) for each in (measured, walked))
            corrected = min(1.0, 2 * float((1 + np.count_nonzero(null >= gain[0])) / (1 + walks)))
            if gain[0] > 0 and corrected <= LEVEL and min(border_contrasts(cosine, candidate)) >= MARGIN:
                borders = candidate
                break
            refused.append(corrected)
        else:
            p = min(refused, default=None)
            break
    return Zones(states, borders, p, border_contrasts(cosine, borders))


def border_contrasts(cosine: Numbers, borders: Sequence[int]) -> tuple[float, ...]:
    return tuple(float((weights * cosine).sum()) for weights in contrast_weights(len(cosine), borders))


def contrast_weights(states: int, borders: Sequence[int]) -> list[Numbers]:
    """Return, for each border, the weights of pairs of states, (states, states), that give its contrast."""
    edges = (0, *borders, states)
    return [_weights(states, *edges[at : at + 3]) for at in range(len(borders))]


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
    """Return the borders of the `count` zones with the most `excess` (states, states) between them, if they fit."""
    table = _segments(excess[None])
    if not np.isfinite(_partition_costs(table, count)[0][0]):
        return None
    return tuple(_best_partitions(table, count)[0].tolist())


def _best_partitions(table: Numbers, count: int) -> NDArray[np.intp]:
    choices = _partition_costs(table, count)[1]
    rows = np.arange(len(table))
    stops = [np.full(len(table), table.shape[1])]
    for zone in range(count - 1, 0, -1):
        stops.append(choices[zone][rows, stops[-1]])
    return np.stack(stops[:0:-1], axis=1)


@dataclass(frozen=True, slots=True)
class _ZoneDistances:
    """Log distances minus their trend for many matrices; `excess` (many, states, states) is Z of `find_zones`.

    `table` (many, states, states + 1) has the excess within each run of states. `trend` (many, steps) has the expected
    log steps, and `residual` (many, steps) the measured minus the expected ones.
    """

    excess: Numbers
    table: Numbers
    trend: Numbers
    residual: Numbers

    @classmethod
    def from_logs(cls, distances: Numbers) -> _ZoneDistances:
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
        residual = np.delete(self.residual, [border - 1 for border in borders], axis=1)
        centered = np.abs(residual - np.median(residual, axis=1, keepdims=True))
        return np.maximum(1.4826 * np.median(centered, axis=1), MIN_SPREAD)

    def gain(self, count: int, borders: tuple[int, ...]) -> Numbers:
        more, fewer = (_partition_costs(self.table, zones)[0] for zones in (count, len(borders) + 1))
        return np.asarray((fewer - more) / self.spread(borders))


def _log_distances(cosine: Numbers) -> Numbers:
    return np.asarray(np.log(np.maximum(-np.log(np.clip(cosine, MIN_COSINE, 1.0)), _TINY)))


def _trend(steps: Numbers) -> Numbers:
    """Fit log steps (many, steps) by a parabola in log depth: least absolute deviations, iteratively reweighted."""
    depth = np.log(np.arange(steps.shape[1]) + 1.5)
    basis = np.stack([depth**power for power in range(3)], axis=1)
    basis = np.linalg.qr(basis)[0]
    products = (basis[:, :, None] * basis[:, None, :]).reshape(-1, 9)
    weights = np.ones_like(steps)
    for _ in range(ROUNDS):
        normal = (weights @ products).reshape(-1, 3, 3) + _TINY * np.eye(3)
        factors = np.linalg.solve(normal, ((weights * steps) @ basis)[:, :, None])[:, :, 0]
        weights = 1 / np.maximum(np.abs(steps - factors @ basis.T), MIN_SPREAD / 10)
    return np.asarray(factors @ basis.T)


def _draw_walks(measured: _ZoneDistances, borders: tuple[int, ...], walks: int, chance: np.random.Generator) -> Numbers:
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


def _partition_costs(table: Numbers, count: int) -> tuple[Numbers, list[Numbers]]:
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
