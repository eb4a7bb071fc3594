"""Contrasts that decide whether middle layers share a representation space (Painters, section 3.1 and figure 3).

An eighth of the depth at each end is compared with the middle at equal distance between states, without sinks. Rows of
the claim `same_space`; `published` is the mean cosine within the middle minus that to the ends:
    beginning, ending = mean_d ( mean_{middle, middle} e(i, i+d)  -  mean_{end, middle} e(i, i+d) )
    e(i, j) = cos of states i and j of one token, minus that of tokens of different documents
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from layerwise.measure.contrasts.contrast import Part, Resampled, first
from layerwise.measure.stats.statistics import Numbers, Seed
from layerwise.results.rows import Score

CLAIM = "same_space"
FEWEST_LAYERS = 8
"""Below this an eighth of the depth is no layer."""


@dataclass(frozen=True, slots=True)
class Cosines:
    """Sums over each document's tokens, (documents, states, states): `cosine` within, `elsewhere` across documents."""

    cosine: Numbers
    elsewhere: Numbers
    tokens: Numbers


def same_space(every: Cosines, no_sink: Cosines, *, seed: Seed = 0, resamples: int = 2_000) -> list[Score]:
    depth = every.cosine.shape[1] - 1
    if depth < FEWEST_LAYERS:
        return []
    excess = no_sink.cosine - no_sink.elsewhere
    sums = {
        "published": (every, np.tensordot(every.cosine, _zones(depth), 2)),
        "beginning": (no_sink, np.tensordot(excess, _side(depth, lambda state, middle: state < middle[0]), 2)),
        "ending": (no_sink, np.tensordot(excess, _side(depth, lambda state, middle: state > middle[-1]), 2)),
    }
    return [_row(metric, cosines.tokens, numerators, seed, resamples) for metric, (cosines, numerators) in sums.items()]


def _row(metric: str, tokens: Numbers, numerators: Numbers, seed: Seed, resamples: int) -> Score:
    part = Part(numerators[None], tokens, len(tokens), int(tokens.sum()))
    return Resampled.of([part], seed=seed, resamples=resamples).row(CLAIM, metric, first)


def middle_states(depth: int) -> range:
    """Return the hidden states of the middle, of 1 to `depth` (0, the embedding, is in no zone).

    >>> middle_states(32), middle_states(12)
    (range(5, 29), range(3, 11))
    """
    end = round(depth / 8)
    return range(1 + end, 1 + depth - end)


def _zones(depth: int) -> Numbers:
    middle = np.isin(np.arange(depth + 1), middle_states(depth))
    counted = np.triu(np.outer(np.arange(depth + 1) > 0, np.ones(depth + 1, dtype=bool)), 1)
    within, across = counted & np.outer(middle, middle), counted & np.not_equal.outer(middle, middle)
    return np.asarray(within / within.sum() - across / across.sum())


def _side(depth: int, is_end: Callable[[int, range], bool]) -> Numbers:
    middle = middle_states(depth)
    ends = [state for state in range(1, depth + 1) if is_end(state, middle)]
    weights, distances = np.zeros((depth + 1, depth + 1)), 0
    for distance in range(1, len(middle)):
        within = [(state, state + distance) for state in middle if state + distance in middle]
        across = [(state, other) for state in ends for other in middle if abs(state - other) == distance]
        if not across:
            continue
        distances += 1
        for pairs, sign in ((within, 1), (across, -1)):
            rows, columns = np.array(pairs).T
            weights[rows, columns] += sign / len(pairs)
    return weights / distances
