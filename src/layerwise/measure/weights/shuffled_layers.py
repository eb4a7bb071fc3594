"""Shuffled layers: the null under which the order of the layers means nothing.

The same layers are put in random orders and measured again, all tensor types in the same orders. What a metric comes to
over these orders is its band: a value inside is no evidence of structure over depth.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from layerwise.measure.stats.null_comparison import ALL, Pooled
from layerwise.measure.stats.statistics import Numbers

Orders = NDArray[np.int64]
"""Layers by position, (orders, depth)."""

_ORDERS = 400
"""Ten of them lie beyond each end of a band."""


def shuffled_orders(depth: int, seed: int) -> Orders:
    """Random orders of `depth` layers, (orders, depth), fixed by `seed`."""
    generator = np.random.default_rng([seed, depth])
    return generator.permuted(np.tile(np.arange(depth), (_ORDERS, 1)), axis=1)


def bands(values: Mapping[str, Numbers]) -> dict[str, Pooled]:
    """Mean, 2.5 and 97.5 % points of each tensor type's values over orders, and those of their mean as `all`."""
    if not values:
        return {}
    known = {**values, ALL: np.mean(list(values.values()), axis=0)}
    pooled = {}
    for task, each in known.items():
        low, high = np.quantile(each, (0.025, 0.975))
        pooled[task] = Pooled(float(each.mean()), float(low), float(high))
    return pooled
