"""The steps of a curve, and what each takes beyond a straight or smoothly curved line.

A curve of costs at windows of M[1] < ... < M[n] layers, from none at M[0], rises in n steps. The excess of a step is
its rise less that of the parabola which fits the curve best,

    excess[i] = (cost[i] - fit[i]) - (cost[i - 1] - fit[i - 1])        fit[i] = a (M[i] - M[0]) + b (M[i] - M[0])^2

with a and b by least squares. It is zero of a straight line and of a parabola, and of five to ten equal steps at most
0.19 of the whole for a curve whose steps grow by a factor of e^5 over it (0.25 where they shrink by e^8). A curve that
is straight but for one step which takes 0.7 of the whole has an excess of 0.27 to 0.62 there, and of 0.39 to 0.88 where
it takes all.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from layerwise.measure.stats.statistics import Numbers

SHARE_OF_DEPTH = 0.1
"""A step is at least so much of the depth, so that no model has more than ten: many small steps would hide an abrupt
one."""

FEWEST_STEPS = 5
"""With fewer, a parabola follows an abrupt step at either end too well."""


def step_ends(sizes: Sequence[int], depth: int) -> tuple[int, ...]:
    """The sizes up to which the steps go: from the greatest down, a tenth of the depth or more apart.

    >>> step_ends((3, 5, 7, 9, 11), 12), step_ends(range(3, 33, 2), 32)
    ((3, 5, 7, 9, 11), (3, 7, 11, 15, 19, 23, 27, 31))
    """
    chosen: list[int] = []
    for size in sorted(sizes, reverse=True):
        if not chosen or chosen[-1] - size >= SHARE_OF_DEPTH * depth:
            chosen.append(size)
    return tuple(chosen[::-1])


def excess_weights(sizes: Sequence[int], start: int) -> Numbers:
    """From the costs at `sizes`, none at `start`, to the excess of every step, of shape (steps, costs).

    >>> (excess_weights([3, 5, 7, 9, 11], 1) @ [0, 0, 1, 1, 1]).round(2).tolist()
    [-0.17, -0.2, 0.77, -0.26, -0.29]
    """
    layers = np.array(sizes, dtype=float) - start
    basis = np.stack([layers, layers**2], axis=1)
    residual = np.eye(len(layers)) - basis @ np.linalg.pinv(basis)
    return np.asarray(np.diff(residual, axis=0, prepend=0.0))
