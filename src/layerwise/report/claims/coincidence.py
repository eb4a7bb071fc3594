"""Do the curves of several models coincide over percent of the depth, as figure 12 of the Painters has them?

Every curve is on the scale of its own model: 0 is the model as trained, 1 is chance,

    share lost = (loss - loss as trained) / (ln vocabulary - loss as trained)        of a normalised benchmark 1 - score

Two curves are compared at the percentages of the one with fewer points that both reach, the other on the line between
its points. Intervals are joined as if independent; that of the loss as trained is added to the first whole.

    coincide         at every percentage the interval of the difference lies inside +-`MARGIN` of the scale
    differ           at some percentage it lies outside, above or below, corrected over them (Bonferroni)
    not resolvable   anything else, and curves neither of which loses `LEAST_LOST` of its scale anywhere

Two runs of one model are no pair. Of several pairs what is said of one is corrected over all by Holm's method.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import combinations
from typing import Any, Literal

import numpy as np

from layerwise.plan import Plan
from layerwise.report.claims.claim import Span, span
from layerwise.report.claims.over_models import holm, model_of, widening
from layerwise.report.data import ReportData
from layerwise.report.derived.over_depth import own_task
from layerwise.results.rows import UNIFORM, Score
from layerwise.results.selection import Rows
from layerwise.results.vocabulary import ALL, COINCIDENCE, CURVE, DELTA, NLL, SCORE_CURVE

Coincidence = Literal["coincide", "differ", "not resolvable"]
COINCIDE: Coincidence = "coincide"
DIFFER: Coincidence = "differ"
OPEN: Coincidence = "not resolvable"

MARGIN = 0.05
"""Curves that differ by less of the scale are the same for an eye."""

LEAST_LOST = 0.2
"""Curves that stay closer to the model as trained would coincide within the margin whatever they are."""

FEWEST_POINTS = 2
Shares = Mapping[float, Span]
"""Percent of the depth to the share of the scale that is lost there."""


@dataclass(frozen=True, slots=True)
class Pair:
    """The curves of one strategy in two models: the difference at each percentage, the first model less the second.

    `lost` is the greatest share of a scale that either loses there.
    """

    models: tuple[str, str]
    differences: Shares
    lost: float

    @property
    def greatest(self) -> tuple[float, Span]:
        """The percentage at which the two are farthest apart, and the difference."""
        return max(self.differences.items(), key=lambda each: abs(each[1].value))

    def verdict(self, comparisons: int = 1) -> Coincidence:
        """The verdict on this pair, with intervals widened for so many comparisons of pairs."""
        if self.lost < LEAST_LOST:
            return OPEN
        everywhere, somewhere = widening(comparisons), widening(comparisons * len(self.differences))
        spans = self.differences.values()
        if all(each.widened(everywhere).position(MARGIN) == "within" for each in spans):
            return COINCIDE
        wide = [each.widened(somewhere) for each in spans]
        return DIFFER if any(each.low > MARGIN or each.high < -MARGIN for each in wide) else OPEN


def coincidences(data: ReportData) -> Iterator[Score]:
    """A row for each pair of models with curves of a strategy on a scale from trained to chance, its verdict corrected
    over the pairs; of more than two models a row over all pairs comes first, whose value is their number.
    """
    rows = data.rows.where(task=ALL)
    for scaled in (rows.where(measure=CURVE, metric=DELTA), *rows.where(measure=SCORE_CURVE).by("metric").values()):
        for key in dict.fromkeys((row.part, row.condition) for row in scaled):
            own = scaled.where(part=key[0], condition=key[1])
            yield from _over_pairs(own[0], _pairs(data, own))


def _pairs(data: ReportData, rows: Rows) -> tuple[Pair, ...]:
    curves = {name: lost for name, own in rows.by("arm").items() if (lost := shares(data.runs[name], own))}
    models = {name: model_of(name, data.runs[name]) for name in curves}
    pairs = (
        Pair((first, second), at, _most_lost(curves[first], curves[second], at))
        for first, second in combinations(curves, 2)
        if models[first] != models[second] and len(at := differences(curves[first], curves[second])) >= FEWEST_POINTS
    )
    return tuple(pairs)


def _over_pairs(about: Score, pairs: tuple[Pair, ...]) -> Iterator[Score]:
    by_pair = {pair.models: cache(pair.verdict) for pair in pairs}
    coincide, differ = (holm(by_pair, [verdict]) for verdict in (COINCIDE, DIFFER))
    task = ALL if about.measure == CURVE else about.metric
    columns: dict[str, Any] = {"part": about.part, "condition": about.condition, "task": task}
    if len(pairs) > 1:
        alone = {pair.verdict() for pair in pairs}
        verdict = COINCIDE if alone == {COINCIDE} else DIFFER if differ or alone == {DIFFER} else OPEN
        yield Score(COINCIDENCE, verdict, float(len(pairs)), **columns)
    for pair in pairs:
        first, second = pair.models
        verdict = COINCIDE if pair.models in coincide else DIFFER if pair.models in differ else OPEN
        percent, difference = pair.greatest
        yield Score(
            COINCIDENCE, verdict, difference.value, difference.low, difference.high, arm=first, against=second,
            amount=percent, **columns,
        )  # fmt: skip


def shares(run: ReportData, rows: Rows) -> Shares:
    """The share of the scale that is lost at each percentage that has an interval; none for a model without a scale."""
    spans = {row.amount: bounds for row in rows if row.amount is not None and (bounds := span(row)) is not None}
    if rows[0].measure == SCORE_CURVE:
        return {percent: Span(1 - each.value, 1 - each.high, 1 - each.low) for percent, each in spans.items()}
    scale = loss_scale(run)
    return {} if scale is None else {percent: _scaled(each, scale) for percent, each in spans.items()}


def loss_scale(run: ReportData) -> Span | None:
    """From the loss as trained to that of guessing all tokens alike, nats per token; `None` where it is not known to be
    above zero, or was not stored.
    """
    guessed = run.rows.value(measure="run", metric=UNIFORM)
    whole = str(Plan.identity(run.depth)) if run.depth else ""
    trained = span(run.effect(whole, own_task(run, ALL), NLL))
    if guessed is None or trained is None or trained.high >= guessed:
        return None
    return Span(guessed - trained.value, guessed - trained.high, guessed - trained.low)


def _scaled(effect: Span, scale: Span) -> Span:
    share = effect.times(1 / scale.value)
    reach = abs(share.value) * max(scale.high - scale.value, scale.value - scale.low) / scale.value
    return Span(share.value, share.low - reach, share.high + reach)


def differences(first: Shares, second: Shares) -> Shares:
    """The first curve less the second, at the percentages of the one with fewer points that both reach."""
    low, high = max(min(first), min(second)), min(max(first), max(second))

    def inside(curve: Shares) -> list[float]:
        return [percent for percent in sorted(curve) if low <= percent <= high]

    coarser = min((first, second), key=lambda curve: (len(inside(curve)), len(curve)))
    return {percent: _difference(_at(first, percent), _at(second, percent)) for percent in inside(coarser)}


def _difference(first: Span, second: Span) -> Span:
    value = first.value - second.value
    below = math.hypot(first.value - first.low, second.high - second.value)
    above = math.hypot(first.high - first.value, second.value - second.low)
    return Span(value, value - below, value + above)


def _at(curve: Shares, percent: float) -> Span:
    """The curve on the line between its two neighbouring points; so is its interval, which is no narrower than that of
    a mean of two.
    """
    known = sorted(curve)
    ends = ([getattr(curve[at], end) for at in known] for end in ("value", "low", "high"))
    return Span(*(float(np.interp(percent, known, each)) for each in ends))


def _most_lost(first: Shares, second: Shares, percents: Shares) -> float:
    return max(_at(curve, percent).value for curve in (first, second) for percent in percents)
