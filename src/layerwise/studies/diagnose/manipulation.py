"""Test whether scaling is milder than other changes of the weights of equal size.

cost[s, x, l] is the nats/token of strategy s (`condition`) at size x in layer l; intervals at 1 - 0.05 / strategies:
    equal    median_l (cost[s, 0.1, l] - cost[scale, 0.1, l])
    unequal  median_l (cost[s, largest, l] - cost[scale, 0.1, l]), the published comparison
`joint_manipulation` has the numbers of `contrasts.joint` by size, and `member`, the effect of skipping each layer.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np

from layerwise.measure.contrasts.contrast import CONTRAST, ArmEffects
from layerwise.measure.stats.statistics import Numbers
from layerwise.results.rows import Score
from layerwise.studies.diagnose.joint import ADDITIVITY

SCALING, JOINT = "scaling", "joint_manipulation"
SCALE = "scale"
SMALL = 0.1
"""Scaling by 0.9 changes the weights by a tenth of their norm."""

_KEY = re.compile(r"(\d+)=(scale|noise|low_rank|interpolate|copy|predict):([0-9.]+)")
_JOINT_KEY = re.compile(r"joint=(\w+):([0-9.]+)")


def scaling(effects: ArmEffects) -> list[Score]:
    """The rows of single layers, whose losses are called `12=noise:0.1`; none without a rival of scaling's size."""
    named = {key: match for key in effects.keys if (match := _KEY.fullmatch(key))}
    part = effects.part(list(named))
    if part is None:
        return []
    runs: dict[str, dict[float, dict[int, int]]] = defaultdict(lambda: defaultdict(dict))
    for index, match in enumerate(named.values()):
        runs[match[2]][float(match[3])][int(match[1])] = index
    own = runs.pop(SCALE, {}).get(SMALL, {})
    rivals = {name: sizes for name, sizes in sorted(runs.items()) if sizes.get(SMALL, {}).keys() & own.keys()}
    rows = []
    for name, sizes in rivals.items():
        for kind, theirs in (("equal", sizes[SMALL]), ("unequal", sizes[max(sizes)])):
            if shared := sorted(own.keys() & theirs.keys()):
                chosen = [*(own[layer] for layer in shared), *(theirs[layer] for layer in shared)]
                drawn = effects.resampled(part, chosen)
                rows.append(drawn.row(SCALING, kind, _median_excess, condition=name, **_corrected(len(rivals))))
    return rows


def joint_manipulation(effects: ArmEffects, ranking: Mapping[int, float], layers: Sequence[int]) -> list[Score]:
    """The rows of a manipulated set of `layers`, chosen by `ranking`; none without scaling and a rival."""
    sizes: dict[str, set[float]] = {}
    for key in effects.keys:
        if match := _JOINT_KEY.fullmatch(key):
            sizes.setdefault(match[1], set()).add(float(match[2]))
    joint = [(name, size) for name, there in sizes.items() for size in sorted(there)]
    keys = [f"joint={name}:{size:g}" for name, size in joint]
    part = effects.part([*keys, *(f"{layer}={name}:{size:g}" for name, size in joint for layer in layers)])
    if part is None or SMALL not in sizes.get(SCALE, ()):
        return []
    rows: list[Score] = []
    for number, (name, size) in enumerate(joint):
        start = len(joint) + number * len(layers)
        drawn = effects.resampled(part, [number, *range(start, start + len(layers))])
        rows += drawn.rows(JOINT, ADDITIVITY, condition=name, amount=size)
    rows.append(Score(CONTRAST, "layers", float(len(layers)), claim=JOINT))
    return rows + [Score(CONTRAST, "member", ranking[layer], claim=JOINT, layer=layer) for layer in layers]


def _corrected(rivals: int) -> dict[str, float]:
    return {"level": 1 - 0.05 / rivals, "power": 1 - 0.2 / rivals}


def _median_excess(effects: Numbers) -> Numbers:
    own, theirs = np.split(effects, 2, axis=-1)
    return np.asarray(np.median(theirs - own, axis=-1))
