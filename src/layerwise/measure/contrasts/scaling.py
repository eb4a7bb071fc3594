"""Is scaling milder than every other change of the weights, once all changes are of one size?

The published comparison sets scaling by 0.9, a change of a tenth of the weights' norm, against replacements that change
them by 70 to 140 %. Here, with cost[s, x, l] the nats per token of strategy s at relative size x in layer l,

    equal    median_l (cost[strategy, 0.1, l] - cost[scale, 0.1, l])
    unequal  median_l (cost[strategy, largest, l] - cost[scale, 0.1, l]), the comparison as it was published

over the layers that both were run in; the strategy is the condition. Intervals are at 1 - 0.05 / strategies: "some
strategy is as mild" is asked of all of them at once. `mde` is what every strategy must cost more for all of them to be
distinguished from scaling in 80 of 100 runs.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from layerwise.measure.contrasts.arms import arms
from layerwise.measure.contrasts.contrast import RESAMPLES, Part, contrast
from layerwise.measure.stats.statistics import Numbers, Seed
from layerwise.results.rows import Loss, Score

CLAIM = "scaling"
SCALE = "scale"
SIZE = 0.1
"""Scaling by 0.9 changes the weights by a tenth of their norm."""

_KEY = re.compile(r"(\d+)=(scale|noise|low_rank|interpolate|copy|predict):([0-9.]+)")


def scaling(losses: Sequence[Loss], baseline: str, *, seed: Seed) -> list[Score]:
    """The rows of the module from the losses of a manipulation; none without scaling and a rival at one size."""
    keys = [key for key in dict.fromkeys(row.plan for row in losses) if _KEY.fullmatch(key)]
    part = arms(losses, baseline, keys)
    return [] if part is None else scaling_rows(part, keys, seed=seed)


def scaling_rows(part: Part, keys: Sequence[str], *, seed: Seed, resamples: int = RESAMPLES) -> list[Score]:
    """The rows of the module from the effects of changes, called `12=noise:0.1` in `keys`."""
    runs: dict[str, dict[float, dict[int, int]]] = defaultdict(lambda: defaultdict(dict))
    for index, key in enumerate(keys):
        if match := _KEY.fullmatch(key):
            runs[match[2]][float(match[3])][int(match[1])] = index
    own = runs.pop(SCALE, {}).get(SIZE, {})
    rivals = {name: sizes for name, sizes in sorted(runs.items()) if sizes.get(SIZE, {}).keys() & own.keys()}
    rows = []
    for name, sizes in rivals.items():
        for kind, theirs in (("equal", sizes[SIZE]), ("unequal", sizes[max(sizes)])):
            shared = sorted(own.keys() & theirs.keys())
            if shared:
                chosen = part.of([*(own[layer] for layer in shared), *(theirs[layer] for layer in shared)])
                level = 1 - 0.05 / len(rivals)
                result = contrast([chosen], _median_excess, seed=seed, level=level, resamples=resamples)
                rows.append(result.row(CLAIM, kind, power=1 - 0.2 / len(rivals), condition=name))
    return rows


def _median_excess(effects: Numbers) -> Numbers:
    """The median over layers of what the second half of the effects costs more than the first: (..., 2 l) -> (...)."""
    own, theirs = np.split(effects, 2, axis=-1)
    return np.asarray(np.median(theirs - own, axis=-1))
