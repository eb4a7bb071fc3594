"""Compare sets of layers that are changed together with their layers one by one and with random sets.

J is the cost of a set in nats/token, S the sum over its single layers, R the cost of random errors of equal norm:
    error_accumulation   joint J, singles S, excess J - S, share 1 - S / J; share_of_noise is the same of random errors
    redundant_sets       joint C, spared (mean cost of random sets of that size) - C; `mde` at 90 % power each
A redundant set is chosen on one half of the text (single effects sum to less than `SURVIVES`), tested on the other.
"""

from __future__ import annotations

import itertools
import math
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np

from layerwise.measure.contrasts.contrast import CONTRAST, ArmEffects, Statistic, first, mean_of_drawn, seeds
from layerwise.measure.interventions.predicted_weight_loss import set_columns
from layerwise.measure.stats.statistics import Numbers
from layerwise.results.rows import Score

ACCUMULATION, REDUNDANT = "error_accumulation", "redundant_sets"
RANDOM_SETS = 20
"""Random sets for each chosen one: another random set falls between their least and most in 19 of 21 cases."""

LEAST = 1e-3
"""Nats per token: damage that is smaller has no shares."""

SURVIVES = 0.2
"""Nats per token, a fifth more perplexity: what the published model "survives" (scaling by 0.9, +19 %)."""


def accumulation(effects: ArmEffects, sets: Mapping[str, Sequence[int]]) -> list[Score]:
    rows: list[Score] = []
    for name, layers in sets.items():
        kinds = ("predicted", "same_norm_random")
        part = effects.part([key for kind in kinds for key in (f"{name}={kind}", *(f"{of}={kind}" for of in layers))])
        if part is not None:
            about, half = set_columns(name, layers), 1 + len(layers)
            own, noise = (effects.resampled(part, range(start, start + half)) for start in (0, half))
            rows += own.rows(ACCUMULATION, ADDITIVITY, **about)
            rows.append(noise.row(ACCUMULATION, "share_of_noise", _share, **about))
            rows.append(Score(CONTRAST, "layers", float(len(layers)), claim=ACCUMULATION, **about))
    return rows


def _singles(effects: Numbers) -> Numbers:
    return np.asarray(effects[..., 1:].sum(axis=-1))


def _share(effects: Numbers) -> Numbers:
    return np.asarray(1 - _singles(effects) / np.maximum(first(effects), LEAST))


ADDITIVITY: Mapping[str, Statistic] = {
    "joint": first,
    "singles": _singles,
    "excess": lambda effects: np.asarray(first(effects) - _singles(effects)),
    "share": _share,
}
"""The four numbers of a set: the first effect is its joint one, the others those of its layers."""


def redundant_layers(ranking: Mapping[int, float], most: int) -> tuple[int, ...]:
    """Choose the most layers whose effects in `ranking` sum to less than `SURVIVES`: at least 2, at most `most`.

    >>> redundant_layers({0: 3.0, 1: 0.05, 2: 0.06, 3: 0.07, 4: 0.5}, most=4)
    (1, 2, 3)
    """
    layers = sorted(ranking, key=ranking.__getitem__)
    sums = itertools.accumulate(ranking[layer] for layer in layers[:most])
    size = max([2, *(count for count, total in enumerate(sums, start=1) if total < SURVIVES)])
    return tuple(sorted(layers[:size]))


def random_sets(depth: int, size: int, seed: int) -> list[tuple[int, ...]]:
    """Draw `RANDOM_SETS` distinct sets of `size` layers; return all sets where there are no more than that.

    >>> random_sets(3, 2, seed=0)
    [(0, 1), (0, 2), (1, 2)]
    """
    if math.comb(depth, size) <= RANDOM_SETS:
        return list(itertools.combinations(range(depth), size))
    draw = np.random.default_rng([seed, depth, size])
    sets: dict[tuple[int, ...], None] = {}
    while len(sets) < RANDOM_SETS:
        sets.setdefault(tuple(sorted(draw.choice(depth, size=size, replace=False).tolist())))
    return list(sets)


def redundant_sets(
    effects: ArmEffects, chosen: str, random: Sequence[str], ranking: Mapping[int, float], size: int
) -> list[Score]:
    """Compute the rows of the plan that skips the `chosen` set of `size` layers, compared with `random` sets.

    `ranking` is the effect of skipping by layer on the other text. Returns no rows if a loss is missing.
    """
    keys = [chosen, *random]
    part = effects.part(keys)
    if part is None:
        return []
    draw = np.random.default_rng([*seeds(effects.seed), size])

    def spared(effects: Numbers) -> Numbers:
        sets = effects[..., 1:]
        random = sets.mean() if sets.ndim == 1 else mean_of_drawn(sets, draw, sets.shape[-1])
        return np.asarray(random - first(effects))

    drawn = effects.resampled(part, range(len(keys)))
    return [
        *drawn.rows(REDUNDANT, {"joint": first, "spared": spared}, power=1 - 0.2 / 2),
        Score(CONTRAST, "layers", float(size), claim=REDUNDANT),
        Score(CONTRAST, "singles", sum(sorted(ranking.values())[:size]), claim=REDUNDANT),
    ]


SCALING, JOINT = "scaling", "joint_manipulation"
SCALE = "scale"
SMALL = 0.1
"""Scaling by 0.9 changes the weights by a tenth of their norm."""

_KEY = re.compile(r"(\d+)=(scale|noise|low_rank|interpolate|copy|predict):([0-9.]+)")
_JOINT_KEY = re.compile(r"joint=(\w+):([0-9.]+)")


def scaling(effects: ArmEffects) -> list[Score]:
    """Test whether scaling is milder than other changes of the weights of equal size, with simultaneous intervals.

    cost[s, x, l] is that of strategy s at size x in layer l; there are no rows without a rival of scaling's size.

        equal    median_l (cost[s, 0.1, l] - cost[scale, 0.1, l])
        unequal  median_l (cost[s, largest, l] - cost[scale, 0.1, l]), the published comparison
    """
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
                level, power = 1 - 0.05 / len(rivals), 1 - 0.2 / len(rivals)
                rows.append(drawn.row(SCALING, kind, _median_excess, condition=name, level=level, power=power))
    return rows


def joint_manipulation(effects: ArmEffects, ranking: Mapping[int, float], layers: Sequence[int]) -> list[Score]:
    """Return the rows of `layers` changed together, chosen by `ranking`; none without scaling and a rival."""
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
        rows += drawn.rows(JOINT, ADDITIVITY, condition=name, strength=size)
    rows.append(Score(CONTRAST, "layers", float(len(layers)), claim=JOINT))
    return rows + [Score(CONTRAST, "member", ranking[layer], claim=JOINT, layer=layer) for layer in layers]


def _median_excess(effects: Numbers) -> Numbers:
    own, theirs = np.split(effects, 2, axis=-1)
    return np.asarray(np.median(theirs - own, axis=-1))
