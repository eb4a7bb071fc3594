"""Do two changes rank the layers alike: is a layer that can go also one that needs few bits?

    spearman      the rank correlation over layers of what two changes cost, with the p of random orders (Holm, over
                  all pairs of changes)
    reliability   that of a change with itself, on halves of the text
    corrected     rho = mean r(a on one half, b on the other) / sqrt(reliability of a * reliability of b)

The attenuation by noise is taken off as by Spearman (1904, "The proof and measurement of association between two
things"): two exact rankings that are equal have rho = 1, however short the text. Both changes are measured on the same
text, whose noise they share, so only what is of different halves is correlated. The interval is a jackknife over
`GROUPS` groups of documents. It says what another text would give, while the p says what other layers would.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from scipy import stats

from layerwise.measure.contrasts.bits import layer_of
from layerwise.measure.contrasts.contrast import arms
from layerwise.measure.stats.grid import FEWEST_UNITS
from layerwise.measure.stats.ranks import FEWEST_LAYERS, centred_ranks, unit_ranks
from layerwise.measure.stats.statistics import Numbers, Seed, holm
from layerwise.plan import Plan
from layerwise.results.rows import Loss, PlanRecord, Score
from layerwise.results.vocabulary import CONTRAST, CORRECTED, LAYER_AGREEMENT, RELIABILITY, SPEARMAN

GROUPS = 10
HALVINGS = 40
ORDERS = 20_000

SINGLE = {"leave_one_out": "removed", "swap_adjacent": "exchanged with the next", "repeat_blocks": "run twice"}
"""The families that change one layer, and what is done to it."""

BITS = {"bits": "at", "bits_noise": "noise of", "bits_left_out": "kept from"}
"""Those of bits, with what stands before the type."""


@dataclass(frozen=True, slots=True)
class _Change:
    """What a change of each layer costs, unit by unit: (layers, units)."""

    layers: tuple[int, ...]
    costs: Numbers


def layer_agreement(
    losses: Sequence[Loss], records: Iterable[PlanRecord], depth: int, *, seed: Seed = 0
) -> list[Score]:
    """The rows of `contrast` about how changes of single layers rank them: `arm` and `against` are two changes.

    Pairs share four layers or more, and the text has 8 units; otherwise there are no rows. A change that costs the same
    in every layer ranks none and has no row.
    """
    whole = str(Plan.identity(depth))
    plans: dict[str, dict[int, str]] = {}
    every: dict[str, str] = {}
    measured = {row.plan for row in losses}
    for record in records:
        about = change_of(record, depth) if record.plan in measured else None
        if about is not None and about[1] is None:
            every[about[0]] = record.plan
        elif about is not None and about[1] is not None:
            plans.setdefault(about[0], {})[about[1]] = record.plan
    named = {name: by_layer for name, by_layer in plans.items() if len(by_layer) >= FEWEST_LAYERS}
    keys = [*(plan for by_layer in named.values() for plan in by_layer.values()), *every.values()]
    part = arms(losses, whole, keys) if len(named) > 1 else None
    if part is None or part.units < FEWEST_UNITS:
        return []
    at = {key: number for number, key in enumerate(keys)}
    changes: dict[str, _Change] = {}
    for name, by_layer in named.items():
        layers = tuple(sorted(by_layer))
        costs = part.numerators[[at[by_layer[layer]] for layer in layers]]
        costs = part.numerators[at[every[name]]] - costs if name in every else costs
        if np.ptp(costs.sum(axis=1)) > 0:
            changes[name] = _Change(layers, costs)
    return list(_rows(changes, part.documents, part.tokens, seed))


def change_of(record: PlanRecord, depth: int) -> tuple[str, int | None] | None:
    """What a plan does to one layer, and to which; no layer where it does it to all."""
    if record.family in BITS:  # of several draws of noise the last
        return f"{BITS[record.family]} {record.strategy}", layer_of(record, depth)
    if record.family not in SINGLE or record.affected != (2 if record.family == "swap_adjacent" else 1):
        return None
    order = Plan.parse(record.plan).order()
    if len(order) > depth + 1:  # three times or more
        return None
    changed = next((at for at, layer in enumerate(order) if layer != at), depth - 1)
    # Where a layer runs twice, the first that stands elsewhere is its second run.
    return SINGLE[record.family], order[changed] if len(order) > depth else changed


def _rows(changes: Mapping[str, _Change], documents: int, tokens: int, seed: Seed) -> Iterator[Score]:
    size: dict[str, Any] = {"claim": LAYER_AGREEMENT, "documents": documents, "tokens": tokens}
    pairs: dict[tuple[str, str], tuple[Numbers, Numbers]] = {}
    for one, other in combinations(changes, 2):
        shared = [layer for layer in changes[one].layers if layer in changes[other].layers]
        if len(shared) >= FEWEST_LAYERS:
            pairs[one, other] = _of(changes[one], shared), _of(changes[other], shared)
    chances = [_p(a.sum(axis=1), b.sum(axis=1), seed) for a, b in pairs.values()]
    adjusted = holm(chances).tolist() if chances else ()
    for ((one, other), (a, b)), p, corrected_p in zip(pairs.items(), chances, adjusted, strict=True):
        test = {"p": p, "p_adjusted": corrected_p, "arm": one, "against": other}
        yield Score(CONTRAST, SPEARMAN, float(unit_ranks(a.sum(axis=1)) @ unit_ranks(b.sum(axis=1))), **test, **size)
        rho, low, high = jackknifed(a, b, seed)
        if np.isfinite([rho, low, high]).all():
            yield Score(CONTRAST, CORRECTED, rho, low, high, **test, **size)
    for name, change in changes.items():
        own = reliability(change.costs, seed)
        if np.isfinite(own):
            yield Score(CONTRAST, RELIABILITY, own, arm=name, **size)


def _of(change: _Change, layers: Sequence[int]) -> Numbers:
    return change.costs[[change.layers.index(layer) for layer in layers]]


def _p(one: Numbers, other: Numbers, seed: Seed) -> float:
    """The share of random orders of the layers that agree, or disagree, as strongly."""
    # Ranks are halves of whole numbers, so sums that are equal are equal to the bit.
    left, right = centred_ranks(one), centred_ranks(other)
    orders = np.random.default_rng(seed).permuted(np.tile(left, (ORDERS, 1)), axis=1)
    return float((1 + (np.abs(orders @ right) >= abs(left @ right)).sum()) / (1 + ORDERS))


def reliability(costs: Numbers, seed: Seed) -> float:
    """The mean rank correlation of the costs, (layers, units), with themselves between random halves of the units."""
    one, other = _halves(costs, seed)
    return float((one * other).sum(axis=1).mean())


def corrected(a: Numbers, b: Numbers, seed: Seed) -> float:
    """The rank correlation of two costs, (layers, units), without the attenuation by noise, at most 1 by its size;
    not-a-number where either is not reliable at all."""
    (one, other), (left, right) = _halves(a, seed), _halves(b, seed)
    across = ((one * right).sum(axis=1).mean() + (other * left).sum(axis=1).mean()) / 2
    within = (one * other).sum(axis=1).mean(), (left * right).sum(axis=1).mean()
    return float(np.clip(across / np.sqrt(np.prod(within)), -1, 1)) if min(within) > 0 else float("nan")


def jackknifed(a: Numbers, b: Numbers, seed: Seed) -> tuple[float, float, float]:
    """`corrected` with its 95 % interval: groups of units are left out in turn."""
    units = a.shape[1]
    groups = min(GROUPS, units)
    labels = np.random.default_rng(seed).permutation(units) % groups
    without = np.array([corrected(a[:, labels != group], b[:, labels != group], seed) for group in range(groups)])
    value = corrected(a, b, seed)
    error = float(np.sqrt((groups - 1) / groups * np.square(without - without.mean()).sum()))
    reach = float(stats.t.ppf(0.975, groups - 1)) * error
    return value, max(-1.0, value - reach), min(1.0, value + reach)


def _halves(costs: Numbers, seed: Seed) -> tuple[Numbers, Numbers]:
    """The ranks of the layers, as vectors of length 1, on random halves of the units: two of (halvings, layers)."""
    units = costs.shape[1]
    order = np.random.default_rng(seed).permuted(np.tile(np.arange(units), (HALVINGS, 1)), axis=1)
    chosen = (order < units // 2).astype(np.float64)
    return unit_ranks(chosen @ costs.T), unit_ranks((1 - chosen) @ costs.T)
