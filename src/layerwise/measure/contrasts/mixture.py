"""The contrast of the pattern of layer weights: what the embedding and the previous layer carry.

Reader n weighs the sources 0..n, source 0 the embedding and source n the layer before it. Their mass is
alpha[n, 0] + alpha[n, n]; over readers n = 2 and up, where these are two sources of three or more,

    pattern   above_equal    mean_n (mass - 2 / (n + 1)): more than equal shares
              learned        mean_n (mass - mass at the start): what training added

with Student's interval over seeds. The task is the arm. Weights that prefer the previous layer before the first step
have mass above equal shares without having learned anything: only `learned` decides.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from layerwise.measure.contrasts.contrast import CONTRAST
from layerwise.measure.stats.seeds import seed_difference
from layerwise.measure.stats.statistics import Numbers
from layerwise.results.rows import Score

PATTERN = "pattern"
CLAIMS = (PATTERN,)
FIRST = 2
"""The first reader with a source that is neither the embedding nor the layer before it."""


def pattern(arm: str, alphas: ArrayLike, initial: ArrayLike) -> list[Score]:
    """The rows of one arm: `alphas` (seeds, readers, sources), `initial` (readers, sources), rows that sum to one.

    None for a stack with no reader of three sources. A mixed output counts as one more reader.
    """
    weights, start = np.asarray(alphas, dtype=np.float64), np.asarray(initial, dtype=np.float64)
    if weights.shape[1] <= FIRST:
        return []
    readers = np.arange(FIRST, weights.shape[1])
    learned = _mass(weights, readers)
    rows = []
    for metric, base in (("above_equal", 2.0 / (readers + 1)), ("learned", _mass(start[None], readers)[0])):
        own, other = dict(enumerate(learned.mean(axis=1))), dict.fromkeys(range(len(weights)), float(base.mean()))
        gap = seed_difference(own, other)
        rows.append(Score(CONTRAST, metric, gap.value, gap.low, gap.high, gap.p, claim=PATTERN, task=arm, mde=gap.mde))
    return rows


def _mass(weights: Numbers, readers: np.typing.NDArray[np.int64]) -> Numbers:
    """(seeds, readers, sources) -> (seeds, readers): the weight of the embedding and of the layer before."""
    return np.asarray(weights[:, readers, 0] + weights[:, readers, readers])
