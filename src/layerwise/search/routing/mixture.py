"""Fixed plans at a given mean number of layers, and the oracle at the same one.

A fixed plan has one cost. At a mean cost between those of two plans the best that fixed plans can do is to draw, for
each prompt by itself, one of two of them: the upper concave hull of all (layers, score). A router, which spends more on
some prompts than on others, is compared with the point of the hull at its own mean layers.
"""

from __future__ import annotations

import numpy as np
from scipy import optimize

from layerwise.measure.stats.statistics import Numbers


def best_mixture(scores: Numbers, layers: Numbers, limit: float) -> Numbers:
    """The shares (plans,) of at most two plans whose mean score is the greatest within `limit` mean layers.

    `scores` and `layers` are (plans,). A limit below the cheapest plan is taken as that plan's.

    >>> best_mixture(np.array([0.2, 0.3, 0.8]), np.array([4.0, 6.0, 8.0]), 7.0).tolist()
    [0.25, 0.0, 0.75]
    """
    limit = max(limit, float(layers.min()))
    first, second = np.meshgrid(np.arange(len(layers)), np.arange(len(layers)), indexing="ij")
    gap = layers[second] - layers[first]
    # The share of the dearer plan that uses up the limit; a pair of equal cost is its first plan alone.
    share = np.divide(limit - layers[first], gap, out=np.zeros(gap.shape), where=gap > 0)
    values = scores[first] + np.clip(share, 0.0, 1.0) * (scores[second] - scores[first])
    values[(gap < 0) | (layers[first] > limit)] = -np.inf
    # A dearer plan that scores less is no reason to spend more.
    alone = np.where(layers <= limit, scores, -np.inf)
    np.fill_diagonal(values, alone)
    # Of equal values the pair that is one plan: rounding decides nothing.
    row, column = np.unravel_index(int(np.argmax(values + 1e-12 * np.eye(len(layers)))), values.shape)
    shares = np.zeros(len(layers))
    shares[row] += 1.0
    if row != column:
        part = float(np.clip(share[row, column], 0.0, 1.0))
        shares[row], shares[column] = 1.0 - part, part
    return shares


def slope(shares: Numbers, scores: Numbers, layers: Numbers) -> float:
    """What one more mean layer is worth to a mixture of two plans, in the unit of `scores`; 0 for a single plan."""
    used = np.flatnonzero(shares)
    if len(used) < 2:
        return 0.0
    low, high = sorted(used, key=lambda plan: layers[plan])
    return float((scores[high] - scores[low]) / (layers[high] - layers[low]))


def oracle(scores: Numbers, layers: Numbers, limit: float) -> Numbers:
    """What knowing every outcome would give within `limit` mean layers: one value a question, (questions,).

        min over price >= 0 of mean over questions of max over plans of (score - price * (layers - limit))

    The dual of the linear programme that assigns plans, or mixtures of them, to questions; its mean is the programme's
    value. It picks noise: of plans that are right at random, some one is right nearly always.

    >>> round(float(oracle(np.array([[0.0, 1.0], [1.0, 1.0]]), np.array([4.0, 8.0]), 6.0).mean()), 6)
    1.0
    """
    limit = max(limit, float(layers.min()))
    gaps = np.diff(np.unique(layers))
    if not len(gaps):
        return np.asarray(scores.max(axis=1))

    def values(price: float) -> Numbers:
        return np.asarray((scores - price * (layers - limit)).max(axis=1))

    highest = float(np.ptp(scores)) / float(gaps.min()) + 1e-9
    best = optimize.minimize_scalar(lambda price: values(price).mean(), bounds=(0.0, highest), method="bounded")
    prices = (0.0, float(best.x))
    return min((values(price) for price in prices), key=lambda each: float(each.mean()))
