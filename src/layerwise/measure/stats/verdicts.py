"""Verdicts on each of L layers, with a family-wise error rate of 5 % over all layers.

The effect of a layer is the loss increase when it is skipped:

    harmful       the effect is below 0 on half of the documents (one-sided 5 %) and on the other half (5 %, Holm)
    no_effect     the interval is inside the margin
    matters       the interval is above 0 and not inside the margin
    inconclusive  otherwise

Intervals are Student t intervals over documents, stratified by task, at level 1 - 0.05 / L and corrected for skewness.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from scipy import optimize
from scipy.special import stdtr

from layerwise.errors import MeasureError
from layerwise.measure.stats.estimate import POWER, SampleEstimate, invert_hall_transform, student_quantile
from layerwise.measure.stats.grid import (
    MIN_DOCUMENTS,
    MIN_UNITS,
    WHOLE,
    Grid,
    Strata,
    arrange,
    shuffle_pieces,
    stratified_effects,
    unit_pieces,
)
from layerwise.measure.stats.statistics import ALPHA, holm_by_key, minimum_detectable_effect
from layerwise.plan.schedule.allocation import MIN_EFFECT
from layerwise.results.rows import Loss, Score
from layerwise.results.vocabulary import VERDICT

Decision = Literal["matters", "no_effect", "harmful", "inconclusive"]

SELECTION = 0.05
"""Uncorrected one-sided level at which a layer becomes a candidate for `harmful`."""


def settle(effect: SampleEstimate[float], margin: float) -> Decision | None:
    """Return `no_effect` or `matters` if the interval is conclusive, otherwise None.

    >>> effect = SampleEstimate(value=0.3, low=0.1, high=0.5, error=0.05, freedom=40)
    >>> settle(effect, 0.01), settle(effect, 1.0)
    ('matters', 'no_effect')
    """
    if is_negligible(effect, margin):
        return "no_effect"
    return "matters" if effect.low > 0 and effect.value >= margin else None


def is_negligible(effect: SampleEstimate[float], margin: float) -> bool:
    return -margin < effect.low and effect.high < margin


def conclude(effect: SampleEstimate[float], margin: float) -> Decision:
    """Return the decision once all text has been read. `matters` then only needs an interval above 0."""
    return settle(effect, margin) or ("matters" if effect.low > 0 else "inconclusive")


def compute_verdicts(
    losses: Iterable[Loss],
    baseline: str,
    keys: Mapping[int, str],
    *,
    seed: int = 0,
    margin: float = MIN_EFFECT,
) -> list[Score]:
    """Return one row of measure `verdict` per layer of `keys`, which maps layers to the plan names of their losses.

    The metric of a row is the decision. `low` and `high` are simultaneous bounds of the effect, and `p_adjusted` is
    Bonferroni-corrected. `mde` is the larger of the loss increase and the loss decrease that are detected with 80 %
    power. For `no_effect` it is the absolute value of the bound further from 0.

    Raises:
        MeasureError: If there are fewer than 8 windows.
    """
    compared = {baseline, *keys.values()}
    grid = arrange(row for row in losses if row.plan in compared)
    refuse_too_little(grid)
    strata, level = Strata.from_lengths(unit_pieces(grid)), 1 - ALPHA / len(keys)
    layer_effects = dict(zip(keys, stratified_effects(grid, baseline, list(keys.values()), strata, level), strict=True))
    harm = HarmTest.from_losses(grid, baseline, keys, seed)
    scores = []
    for layer, effect in layer_effects.items():
        decision: Decision = "harmful" if layer in harm.harmful else conclude(effect, margin)
        scores.append(
            Score(
                VERDICT,
                decision,
                *effect.row(),
                layer=layer,
                p_adjusted=min(1.0, len(keys) * float(effect.p())),
                mde=verdict_mde(effect, decision, harm, layer),
                documents=grid.documents(),
                tokens=int(grid.tokens.sum()),
            )
        )
    return scores


def verdict_mde(effect: SampleEstimate[float], decision: Decision, harm: HarmTest, layer: int) -> float:
    if decision == "no_effect":
        return max(abs(effect.low), abs(effect.high))
    return max(detectable_effect(effect, harm.layers), harm.detectable(layer))


def detectable_effect(effect: SampleEstimate[float], comparisons: float) -> float:
    """Return the effect that one of `comparisons` simultaneous intervals separates from zero with 80 % power."""
    units = max(2, round(effect.freedom) + 1)
    return float(minimum_detectable_effect(effect.error, units, comparisons=comparisons))


@dataclass(frozen=True, slots=True)
class HarmTest:
    """A test of whether skipping a layer lowers the loss.

    Candidates are found on the first half of the documents and confirmed on the second. `first` and `second` map every
    layer to its effect on that half. They are empty for fewer than 16 documents.
    """

    first: Mapping[int, SampleEstimate[float]]
    second: Mapping[int, SampleEstimate[float]]
    candidates: tuple[int, ...]
    harmful: frozenset[int]
    layers: int

    @classmethod
    def from_losses(cls, grid: Grid, baseline: str, keys: Mapping[int, str], seed: int) -> HarmTest:
        if grid.documents() < MIN_DOCUMENTS:
            return cls({}, {}, (), frozenset(), len(keys))
        return cls.from_halves(*_split_documents(grid, seed), baseline, keys, Strata.from_lengths(unit_pieces(grid)))

    @classmethod
    def from_halves(cls, first: Grid, second: Grid, baseline: str, keys: Mapping[int, str], strata: Strata) -> HarmTest:
        before, after = (
            dict(zip(keys, stratified_effects(part, baseline, list(keys.values()), strata, 1 - ALPHA), strict=True))
            for part in (first, second)
        )
        candidates = tuple(layer for layer, effect in before.items() if effect.p_below() < SELECTION)
        return cls(before, after, candidates, confirm_harm({each: after[each] for each in candidates}), len(keys))

    def detectable(self, layer: int) -> float:
        """Return the loss decrease (nats/token) from skipping `layer` that is found and confirmed with 80 % power.

        Solves the equation for d, with k candidates including this layer, standard errors s1 and s2 on the two halves,
        and quantiles t1 and t2 corrected for skewness. Returns 0 for fewer than 16 documents.

            P(T1 < d / s1 - t1[1 - SELECTION]) * P(T2 < d / s2 - t2[1 - ALPHA / k]) = 0.8
        """
        if not self.first:
            return 0.0
        candidates = len({*self.candidates, layer})
        halves = [
            (
                each.error,
                each.freedom,
                -float(invert_hall_transform(student_quantile(level, each.freedom), each.skewness)),
            )
            for each, level in ((self.first[layer], SELECTION), (self.second[layer], ALPHA / candidates))
        ]
        widest = max(error for error, _, _ in halves)
        if widest == 0.0:
            return 0.0

        def power(size: float) -> float:
            shares = (
                stdtr(freedom, size * widest / error - bound) if error else 1.0 for error, freedom, bound in halves
            )
            return float(math.prod(shares)) - POWER

        return float(optimize.brentq(power, 0.0, 1e3)) * widest


def confirm_harm(candidates: Mapping[int, SampleEstimate[float]]) -> frozenset[int]:
    """Return the candidates whose effect is also below 0 on the second half (one-sided test, Holm-corrected)."""
    adjusted = holm_by_key({layer: float(effect.p_below()) for layer, effect in candidates.items()})
    return frozenset(layer for layer, p in adjusted.items() if p < ALPHA)


def refuse_too_little(grid: Grid) -> None:
    units = grid.by_unit(grid.tokens).size
    if units < MIN_UNITS:
        shorter = max(2, int(grid.tokens.sum() / MIN_UNITS))
        raise MeasureError(
            f"The text must have at least {MIN_UNITS} windows for a verdict, got {units}. Use a longer text or shorter "
            f"windows (--max-length {shorter})."
        )


def _split_documents(grid: Grid, seed: int) -> tuple[Grid, Grid]:
    owners = [(task, document, WHOLE) for task, document, _ in grid.cells]
    first = frozenset(shuffle_pieces(set(owners), seed)[::2])
    return grid.part([owner in first for owner in owners]), grid.part([owner not in first for owner in owners])
