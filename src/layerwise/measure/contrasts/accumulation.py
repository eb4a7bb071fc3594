"""Do errors accumulate: does a set of changed layers cost more together than its layers do one by one?

With J the nats per token that a set costs together and S the sum of what its layers cost by themselves,

    joint     J
    singles   S
    excess    J - S, in nats per token; above zero where errors add to each other's harm
    share     1 - S / J, the part of the damage that single costs do not add up to; 0 where they add up

Of predicted layers these are rows of the claim `error_accumulation`, with how the set was chosen as condition (`set`,
`adjacent`, `inner`) and its size as amount; beside them `share_of_noise`, the same of random errors of the same norm,
and `layers`, how many the set has. A loss has a ceiling, near which costs cannot add up: there S is above J whatever
the errors do. So the set that decides is the largest evenly spread one, of half of the inner layers at most, as in
`layerwise.measure.contrasts.joint_collapse`.

Of a set that was manipulated they are rows of the claim `joint_manipulation`, with a strategy as condition and its size
as amount; and over scaling by a tenth, without an amount,

    equal    J of the strategy at the size of a tenth, less that of scaling
    unequal  J at its largest size, less that of scaling by a tenth: the comparison as it was published

at 1 - 0.05 / strategies, as in `layerwise.measure.contrasts.scaling`; `layers`, how many the set has, and `member`, by
layer, what skipping it costs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from layerwise.measure.contrasts.arms import arms
from layerwise.measure.contrasts.contrast import CONTRAST, RESAMPLES, Contrast, Part, contrast, contrasts
from layerwise.measure.interventions.predicted_weight_loss import set_columns
from layerwise.measure.stats.statistics import Numbers, Seed
from layerwise.results.rows import Loss, Score

ACCUMULATION, MANIPULATION = "error_accumulation", "joint_manipulation"
SCALE, SMALL = "scale", 0.1
LEAST = 1e-3
"""Nats per token: damage that is smaller has no shares."""

_JOINT = re.compile(r"joint=(\w+):([0-9.]+)")
Sizes = Mapping[str, Sequence[float]]


def accumulation(
    losses: Sequence[Loss], baseline: str, sets: Mapping[str, Sequence[int]], *, seed: Seed
) -> list[Score]:
    """The rows of predicted sets, by name their layers; none of a set of which a loss is missing."""
    rows: list[Score] = []
    for name, layers in sets.items():
        kinds = ("predicted", "same_norm_random")
        keys = [key for kind in kinds for key in (f"{name}={kind}", *(f"{layer}={kind}" for layer in layers))]
        part = arms(losses, baseline, keys)
        if part is not None:
            rows += accumulation_rows(part, set_columns(name, layers), seed=seed)
    return rows


def accumulation_rows(
    part: Part, about: Mapping[str, Any], *, seed: Seed, resamples: int = RESAMPLES
) -> list[Score]:  # fmt: skip
    """The rows of one set from effects: of the predicted set and its layers, then of the random errors in them.

    `about` are the columns that name the set: its `condition` and `amount`.
    """
    half = len(part.numerators) // 2
    own, noise = part.of(range(half)), part.of(range(half, 2 * half))
    rows = _additivity(ACCUMULATION, about, own, seed, resamples)
    compared = contrast([noise], _share, seed=seed, resamples=resamples)
    rows.append(compared.row(ACCUMULATION, "share_of_noise", **about))
    return [*rows, Score(CONTRAST, "layers", float(half - 1), claim=ACCUMULATION, **about)]


def joint_manipulation(
    losses: Sequence[Loss], baseline: str, ranking: Mapping[int, float], layers: Sequence[int], *, seed: Seed
) -> list[Score]:
    """The rows of a manipulated set of `layers`, chosen by `ranking`; none without scaling and a rival."""
    sizes: dict[str, set[float]] = {}
    for key in dict.fromkeys(row.plan for row in losses):
        if match := _JOINT.fullmatch(key):
            sizes.setdefault(match[1], set()).add(float(match[2]))
    joint = [(name, size) for name, there in sizes.items() for size in sorted(there)]
    keys = [f"joint={name}:{size:g}" for name, size in joint]
    singles = [f"{layer}={name}:{size:g}" for name, size in joint for layer in layers]
    part = arms(losses, baseline, [*keys, *singles])
    if part is None or SMALL not in sizes.get(SCALE, ()):
        return []
    members = [Score(CONTRAST, "member", ranking[layer], claim=MANIPULATION, layer=layer) for layer in layers]
    return [*joint_manipulation_rows(part, joint, len(layers), seed=seed), *members]


def joint_manipulation_rows(
    part: Part, joint: Sequence[tuple[str, float]], layers: int, *, seed: Seed, resamples: int = RESAMPLES
) -> list[Score]:
    """The rows from effects: of every joint manipulation (strategy, size), then for each of them of its `layers`."""
    rows: list[Score] = []
    for number, (name, size) in enumerate(joint):
        first = len(joint) + number * layers
        own = part.of([number, *range(first, first + layers)])
        rows += _additivity(MANIPULATION, {"condition": name, "amount": size}, own, seed, resamples)
    scaled = joint.index((SCALE, SMALL))
    rivals = sorted({name for name, size in joint if name != SCALE and (name, SMALL) in joint})
    for name in rivals:
        largest = max(size for other, size in joint if other == name)
        for kind, size in (("equal", SMALL), ("unequal", largest)):
            pair = part.of([joint.index((name, size)), scaled])
            estimate = contrast([pair], _difference, seed=seed, level=1 - 0.05 / len(rivals), resamples=resamples)
            rows.append(estimate.row(MANIPULATION, kind, power=1 - 0.2 / len(rivals), condition=name))
    return [*rows, Score(CONTRAST, "layers", float(layers), claim=MANIPULATION)]


def _additivity(
    claim: str, about: Mapping[str, Any], part: Part, seed: Seed, resamples: int
) -> list[Score]:  # fmt: skip
    """The four numbers of a set: the first effect is its joint one, the others those of its layers."""
    statistics = {"joint": _joint, "singles": _singles, "excess": _excess, "share": _share}
    estimate: tuple[Contrast, ...] = contrasts([part], list(statistics.values()), seed=seed, resamples=resamples)
    return [each.row(claim, metric, **about) for metric, each in zip(statistics, estimate, strict=True)]


def _joint(effects: Numbers) -> Numbers:
    return effects[..., 0]


def _singles(effects: Numbers) -> Numbers:
    return np.asarray(effects[..., 1:].sum(axis=-1))


def _excess(effects: Numbers) -> Numbers:
    return np.asarray(_joint(effects) - _singles(effects))


def _share(effects: Numbers) -> Numbers:
    return np.asarray(1 - _singles(effects) / np.maximum(_joint(effects), LEAST))


def _difference(effects: Numbers) -> Numbers:
    return np.asarray(effects[..., 0] - effects[..., 1])
