"""Verdicts on layers: does a layer matter, is nothing to be seen, or is the model better without it?

A score is not a verdict. Three decisions are made from the paired differences of skipping each layer, all L layers
together at a family-wise error rate `alpha`:

    matters     its interval lies above 0, and not wholly below the margin
    harmful     its interval lies below 0 on one half of the documents, and again on the other half, which had no say in
                choosing it: the smallest of many noisy scores is negative by chance alone
    no_effect   anything else: no effect above X nats, where X is the margin if the interval lies inside it, and the
                minimum detectable effect if not

Intervals are Student's over documents, task by task (`layerwise.measure.strata`), at level `1 - alpha / L`
(Bonferroni), so that all of them hold together. `harmful` is confirmed one-sided at `alpha / candidates`. Where
documents are few, windows take their place.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from layerwise.errors import MeasureError
from layerwise.measure.grid import FEWEST_UNITS, Grid, arrange
from layerwise.measure.reading import FEWEST_DOCUMENTS, WHOLE, Piece, shuffled
from layerwise.measure.rule import Decision, Rule
from layerwise.measure.statistics import minimum_detectable_effect
from layerwise.measure.strata import Effect, Strata, stratified
from layerwise.results.rows import Loss, Score

MEASURE = "verdict"


def verdicts(
    losses: Iterable[Loss], baseline: str, keys: Mapping[int, str], *, seed: int = 0, rule: Rule | None = None
) -> list[Score]:
    """One row of measure `verdict` for every layer of `keys` (layer to the key of its losses), the task `all`.

    The metric is the decision; `value`, `low` and `high` are the effect of skipping the layer with its simultaneous
    interval, `p_adjusted` Bonferroni's, `resolution` the X of "no effect above X nats". Raises `MeasureError` where
    there are too few windows for any interval, and says how many are needed.
    """
    rule = rule or Rule()
    wanted = {baseline, *keys.values()}
    grid = arrange(row for row in losses if row.plan in wanted)
    refuse_too_little(grid)
    strata = Strata.of(_lengths(grid))
    level = 1 - rule.alpha / len(keys)
    found = dict(zip(keys, stratified(grid, baseline, list(keys.values()), strata, level), strict=True))
    harmful = _harmful(grid, baseline, keys, strata, rule, seed)
    scores = []
    for layer, effect in found.items():
        decision = "harmful" if layer in harmful else rule.concludes(effect)
        if decision == "harmful" and layer not in harmful:
            decision = "no_effect"
        scores.append(
            Score(
                MEASURE, str(layer), "all", decision, effect.value, effect.low, effect.high,
                p_adjusted=min(1.0, len(keys) * effect.p()), resolution=limit(effect, decision, len(keys), rule),
                documents=grid.documents(), tokens=int(grid.tokens.sum()),
            )
        )  # fmt: skip
    return scores


def confirmed(fresh: Grid, baseline: str, suspects: Mapping[int, str], strata: Strata, rule: Rule) -> Collection[int]:
    """The suspects whose effect is below 0 on `fresh` documents too, one-sided, at `alpha` over all of them."""
    if not suspects or fresh.by_unit(fresh.tokens).size < FEWEST_UNITS:
        return ()
    level = 1 - 2 * rule.alpha / len(suspects)
    found = stratified(fresh, baseline, list(suspects.values()), strata, level)
    return [layer for layer, effect in zip(suspects, found, strict=True) if effect.high < 0]


def limit(effect: Effect, decision: Decision, comparisons: int, rule: Rule) -> float:
    """The X of "no effect above X nats": the margin where the interval lies inside it, else what would have been seen.

    The latter is the minimum detectable effect at 80 % power with `comparisons` intervals at `alpha` together.
    """
    if decision == "no_effect" and rule.settles(effect) == "no_effect":
        return rule.margin
    units = max(2, round(effect.freedom) + 1)
    return float(minimum_detectable_effect(effect.error, units, comparisons=comparisons, alpha=rule.alpha))


def refuse_too_little(grid: Grid) -> None:
    """Raise `MeasureError` where there are too few windows for any interval."""
    units = grid.by_unit(grid.tokens).size
    if units < FEWEST_UNITS:
        shorter = max(2, int(grid.tokens.sum() / FEWEST_UNITS))
        raise MeasureError(
            f"the text makes {units} window{'s' * (units != 1)} and no verdict can be given on fewer than "
            f"{FEWEST_UNITS}: give a longer text, or shorter windows (--length {shorter})"
        )


def _harmful(
    grid: Grid, baseline: str, keys: Mapping[int, str], strata: Strata, rule: Rule, seed: int
) -> Collection[int]:
    """The layers found harmful on one half of the text and confirmed on the other."""
    first, second = _halves(grid, seed)
    if min(part.by_unit(part.tokens).size for part in (first, second)) < FEWEST_UNITS:
        return ()
    found = stratified(first, baseline, list(keys.values()), strata, 1 - rule.alpha / len(keys))
    suspects = {layer: keys[layer] for layer, effect in zip(keys, found, strict=True) if effect.high < 0}
    return confirmed(second, baseline, suspects, strata, rule)


def _lengths(grid: Grid) -> dict[Piece, int]:
    lengths: dict[Piece, int] = {}
    for owner, tokens in zip(_owners(grid), grid.tokens, strict=True):
        lengths[owner] = lengths.get(owner, 0) + int(tokens)
    return lengths


def _halves(grid: Grid, seed: int) -> tuple[Grid, Grid]:
    """Two halves of the cells that share no document (no window, where documents are few), drawn from `seed`."""
    owners = _owners(grid)
    first = frozenset(shuffled(set(owners), seed)[::2])
    return grid.part([owner in first for owner in owners]), grid.part([owner not in first for owner in owners])


def _owners(grid: Grid) -> list[Piece]:
    """The piece of text that each cell belongs to."""
    whole = grid.documents() >= FEWEST_DOCUMENTS
    return [(task, document, WHOLE if whole else window) for task, document, window in grid.cells]
