"""Contrasts of a diagnosis: changes of several layers, random sets of layers, scaling, and agreement with skipping.

Let J be the cost of changing a set of layers together, and S the sum of the costs of changing each of them alone, in
nats/token. The claims and their metrics are:
    error_accumulation   joint J, singles S, excess J - S, share 1 - S / J, and share_of_noise (for random errors)
    redundant_sets       joint J, and spared (mean cost of random sets of the same size) - J
A redundant set has the layers that cost least. It is selected on one half of the text and measured on the other half.
"""

from __future__ import annotations

import itertools
import math
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from layerwise.measure.contrasts.contrast import (
    CONTRAST,
    PlanEffects,
    Statistic,
    average_redrawn,
    convert_to_seeds,
    take_first,
)
from layerwise.measure.interventions.predicted_weight_loss import set_columns
from layerwise.measure.stats.correlation import rank_correlation
from layerwise.measure.stats.statistics import Numbers
from layerwise.results import vocabulary as vocab
from layerwise.results.rows import Score

ACCUMULATION, REDUNDANT = "error_accumulation", "redundant_sets"
RANDOM_SETS = 20
"""Number of random sets. A further random set would be within their range with a probability of 19/21."""

MIN_DAMAGE = 1e-3
"""Lower bound of a cost that another cost is divided by, in nats/token."""

MAX_SURVIVED = 0.2
"""Cost in nats/token that counts as tolerated: a fifth more perplexity, as in the paper (scaling by 0.9, +19 %)."""


def contrast_sets(effects: PlanEffects, sets: Mapping[str, Sequence[int]]) -> list[Score]:
    rows: list[Score] = []
    for name, layers in sets.items():
        kinds = ("predicted", "same_norm_random")
        part = effects.part(
            [key for kind in kinds for key in (f"{name}={kind}", *(f"{layer}={kind}" for layer in layers))]
        )
        if part is not None:
            about, half = set_columns(name, layers), 1 + len(layers)
            own, noise = (effects.resample(part, range(start, start + half)) for start in (0, half))
            rows += own.rows(ACCUMULATION, ADDITIVITY, **about)
            rows.append(noise.row(ACCUMULATION, "share_of_noise", _compute_share, **about))
            rows.append(Score(CONTRAST, "layers", float(len(layers)), claim=ACCUMULATION, **about))
    return rows


def _select_single_layers(effects: Numbers) -> Numbers:
    return np.asarray(effects[..., 1:].sum(axis=-1))


def _compute_share(effects: Numbers) -> Numbers:
    return np.asarray(1 - _select_single_layers(effects) / np.maximum(take_first(effects), MIN_DAMAGE))


ADDITIVITY: Mapping[str, Statistic] = {
    "joint": take_first,
    "singles": _select_single_layers,
    "excess": lambda effects: np.asarray(take_first(effects) - _select_single_layers(effects)),
    "share": _compute_share,
}
"""Statistics of an array of effects, first that of a set of layers, then those of each layer in the set."""


def select_redundant_layers(ranking: Mapping[int, float], most: int) -> tuple[int, ...]:
    """Select the layers with the smallest effects, as long as the sum of the effects is below `MAX_SURVIVED`.

    At least 2 layers and at most `most` layers are selected.

    >>> select_redundant_layers({0: 3.0, 1: 0.05, 2: 0.06, 3: 0.07, 4: 0.5}, most=4)
    (1, 2, 3)
    """
    layers = sorted(ranking, key=ranking.__getitem__)
    sums = itertools.accumulate(ranking[layer] for layer in layers[:most])
    size = max([2, *(count for count, total in enumerate(sums, start=1) if total < MAX_SURVIVED)])
    return tuple(sorted(layers[:size]))


def draw_random_sets(depth: int, size: int, seed: int) -> list[tuple[int, ...]]:
    """Draw `RANDOM_SETS` distinct sets of `size` layers, or return all sets if there are no more than that.

    >>> draw_random_sets(3, 2, seed=0)
    [(0, 1), (0, 2), (1, 2)]
    """
    if math.comb(depth, size) <= RANDOM_SETS:
        return list(itertools.combinations(range(depth), size))
    draw = np.random.default_rng([seed, depth, size])
    sets: dict[tuple[int, ...], None] = {}
    while len(sets) < RANDOM_SETS:
        sets.setdefault(tuple(sorted(draw.choice(depth, size=size, replace=False).tolist())))
    return list(sets)


def contrast_redundant_sets(
    effects: PlanEffects, chosen: str, random: Sequence[str], ranking: Mapping[int, float], size: int
) -> list[Score]:
    """Compare the plan `chosen`, which skips `size` selected layers, with the plans `random`, which skip random sets.

    `ranking` has the effect of skipping each layer, measured on a separate half of the text. If a loss is missing,
    there are no rows.
    """
    keys = [chosen, *random]
    part = effects.part(keys)
    if part is None:
        return []
    draw = np.random.default_rng([*convert_to_seeds(effects.seed), size])

    def spared(effects: Numbers) -> Numbers:
        sets = effects[..., 1:]
        random = sets.mean() if sets.ndim == 1 else average_redrawn(sets, draw, sets.shape[-1])
        return np.asarray(random - take_first(effects))

    drawn = effects.resample(part, range(len(keys)))
    return [
        *drawn.rows(REDUNDANT, {"joint": take_first, "spared": spared}, power=1 - 0.2 / 2),
        Score(CONTRAST, "layers", float(size), claim=REDUNDANT),
        Score(CONTRAST, "singles", sum(sorted(ranking.values())[:size]), claim=REDUNDANT),
    ]


SCALING, JOINT = "scaling", "joint_manipulation"
SCALE = "scale"
SMALL = 0.1
"""Relative change of the weights by scaling them by 0.9."""

_KEY = re.compile(r"(\d+)=(scale|noise|low_rank|interpolate|copy|predict):([0-9.]+)")
_JOINT_KEY = re.compile(r"joint=(\w+):([0-9.]+)")


def contrast_scaling(effects: PlanEffects) -> list[Score]:
    """Compare the cost of each strategy s with that of scaling by 0.9. The intervals are simultaneous.

    The cost in layer l depends on the relative size of the change. The rows are medians over layers:
        equal    median_l (cost[s, 0.1, l] - cost[scale, 0.1, l])
        unequal  median_l (cost[s, largest, l] - cost[scale, 0.1, l]), the published comparison
    """
    matches = {key: match for key in effects.keys if (match := _KEY.fullmatch(key))}
    part = effects.part(list(matches))
    if part is None:
        return []
    runs: dict[str, dict[float, dict[int, int]]] = defaultdict(lambda: defaultdict(dict))
    for index, match in enumerate(matches.values()):
        runs[match[2]][float(match[3])][int(match[1])] = index
    own = runs.pop(SCALE, {}).get(SMALL, {})
    rivals = {name: sizes for name, sizes in sorted(runs.items()) if sizes.get(SMALL, {}).keys() & own.keys()}
    rows = []
    for name, sizes in rivals.items():
        for kind, theirs in (("equal", sizes[SMALL]), ("unequal", sizes[max(sizes)])):
            if shared := sorted(own.keys() & theirs.keys()):
                drawn = effects.resample(part, [costs[layer] for costs in (own, theirs) for layer in shared])
                level, power = 1 - 0.05 / len(rivals), 1 - 0.2 / len(rivals)
                rows.append(drawn.row(SCALING, kind, _compute_median_excess, condition=name, level=level, power=power))
    return rows


def contrast_joint_changes(effects: PlanEffects, ranking: Mapping[int, float], layers: Sequence[int]) -> list[Score]:
    """Compare changing several layers together with changing each of them alone, for each strategy and size.

    `layers` were selected by `ranking`, which has the effect of skipping each layer.
    """
    sizes: dict[str, set[float]] = {}
    for key in effects.keys:
        if match := _JOINT_KEY.fullmatch(key):
            sizes.setdefault(match[1], set()).add(float(match[2]))
    joint = [(name, size) for name, own_sizes in sizes.items() for size in sorted(own_sizes)]
    keys = [f"joint={name}:{size:g}" for name, size in joint]
    part = effects.part([*keys, *(f"{layer}={name}:{size:g}" for name, size in joint for layer in layers)])
    if part is None or SMALL not in sizes.get(SCALE, ()):
        return []
    rows: list[Score] = []
    for number, (name, size) in enumerate(joint):
        start = len(joint) + number * len(layers)
        drawn = effects.resample(part, [number, *range(start, start + len(layers))])
        rows += drawn.rows(JOINT, ADDITIVITY, condition=name, strength=size)
    rows.append(Score(CONTRAST, "layers", float(len(layers)), claim=JOINT))
    return rows + [Score(CONTRAST, "member", ranking[layer], claim=JOINT, layer=layer) for layer in layers]


def _compute_median_excess(effects: Numbers) -> Numbers:
    own, theirs = np.split(effects, 2, axis=-1)
    return np.asarray(np.median(theirs - own, axis=-1))


SHUFFLES = 10_000

Metrics = Mapping[str, Mapping[int, float]]


def correlate_with_skipping(metrics: Metrics, *, seed: int = 0) -> Iterator[Score]:
    skips = metrics.get(vocab.SKIPPING, {})
    for name, values in metrics.items():
        shared = sorted(skips.keys() & values.keys())
        pair = [[each[layer] for layer in shared] for each in (skips, values)]
        correlation = None if name == vocab.SKIPPING else rank_correlation(*pair, seed=seed, shuffles=SHUFFLES)
        if correlation is not None:
            numbers = (correlation.value, correlation.low, correlation.high, correlation.p)
            yield Score(vocab.AGREEMENT, "spearman", *numbers, condition=name)
            band = (0.0, correlation.null_low, correlation.null_high)
            yield Score(vocab.AGREEMENT, "spearman", *band, condition=name, against=vocab.SHUFFLED_LAYERS)
