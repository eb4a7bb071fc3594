"""Do the curves of several models coincide over percent of the depth, as figure 12 of the Painters has them?

Every curve is on the scale of its own model: 0 is the model as trained, 1 is chance,

    share lost = (loss - loss as trained) / (ln vocabulary - loss as trained)        of a normalised benchmark 1 - score

Two curves are compared at the percentages of the one with fewer points that both reach; the other is read off the line
between its two neighbouring points there. The 95 % intervals of the two are joined as if independent, which is wider
than need be for models on one text; the interval of the loss as trained is added to the first whole.

    coincide         at every percentage the interval of the difference lies inside +-`MARGIN` of the scale
    differ           at some percentage it lies outside, above or below, corrected over them (Bonferroni)
    not resolvable   anything else, and curves neither of which loses `LEAST_LOST` of its scale anywhere

Two runs of one model are no pair. Over more than two models every pair is judged, and what is said of one among them is
corrected over the pairs by Holm's method, with intervals widened as those of claims are
(`layerwise.report.comparison.verdicts`).
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import combinations
from typing import Literal

from layerwise.plan import Plan
from layerwise.report.claims.claim import Span, span
from layerwise.report.comparison.compared import Compared, ComparedRun
from layerwise.report.comparison.overlay import (
    CurveMeasure,
    curve_lines,
    curve_measures,
    strategies,
    task_of,
)
from layerwise.report.comparison.verdicts import holm, widening
from layerwise.report.evidence import ALL_TASKS, DELTA
from layerwise.results.rows import UNIFORM, Score
from layerwise.results.vocabulary import BENCHMARK

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


@dataclass(frozen=True, slots=True)
class CurveCoincidence:
    """One strategy by one measure: every pair of models whose curves can be compared, with its verdict after Holm's
    correction over the pairs, and the verdict over all of them.
    """

    measure: CurveMeasure
    family: str
    strategy: str
    pairs: tuple[tuple[Pair, Coincidence], ...]
    verdict: Coincidence


def coincidences(compared: Compared) -> tuple[CurveCoincidence, ...]:
    """Every strategy that two models or more have a curve of on a scale from trained to chance."""
    every = (
        _over_pairs(measure, family, strategy, _pairs(compared, measure, family, strategy))
        for measure in curve_measures(compared)
        if measure.task == ALL_TASKS and (measure.metric == DELTA or measure.measure == BENCHMARK)
        for family, strategy in strategies(compared)
    )
    return tuple(each for each in every if each.pairs)


def _pairs(compared: Compared, measure: CurveMeasure, family: str, strategy: str) -> tuple[Pair, ...]:
    runs = {run.name: run for run in compared.runs}
    lines = curve_lines(compared, family, strategy, measure)
    curves = {line.name: lost for line in lines if (lost := shares(runs[line.name], line.rows, measure))}
    pairs = (
        Pair((first, second), at, _most_lost(curves[first], curves[second], at))
        for first, second in combinations(curves, 2)
        if runs[first].model != runs[second].model
        and len(at := differences(curves[first], curves[second])) >= FEWEST_POINTS
    )
    return tuple(pairs)


def _over_pairs(measure: CurveMeasure, family: str, strategy: str, pairs: tuple[Pair, ...]) -> CurveCoincidence:
    alone = {pair.verdict() for pair in pairs}
    by_pair = {pair.models: cache(pair.verdict) for pair in pairs}
    coincide, differ = (holm(by_pair, [verdict]) for verdict in (COINCIDE, DIFFER))
    verdict = COINCIDE if alone == {COINCIDE} else DIFFER if differ or alone == {DIFFER} else OPEN
    corrected = tuple(
        (pair, COINCIDE if pair.models in coincide else DIFFER if pair.models in differ else OPEN) for pair in pairs
    )
    return CurveCoincidence(measure, family, strategy, corrected, verdict)


def shares(run: ComparedRun, rows: Mapping[float, Score], measure: CurveMeasure) -> Shares:
    """The share of the scale that is lost at each percentage that has an interval; none for a model without a scale."""
    if measure.measure == BENCHMARK:
        scores = {percent: span(score) for percent, score in rows.items()}
        return {
            percent: Span(1 - each.value, 1 - each.high, 1 - each.low)
            for percent, each in scores.items()
            if each is not None
        }
    scale = loss_scale(run, measure.task)
    return {} if scale is None else dict(_scaled(rows, scale))


def loss_scale(run: ComparedRun, task: str) -> Span | None:
    """From the loss as trained to that of guessing all tokens alike, nats per token; `None` where it is not known to be
    above zero, or was not stored.
    """
    guessed = next((score.value for score in run.evidence.scores("run") if score.metric == UNIFORM), None)
    trained = span(run.evidence.effect(str(Plan.identity(run.evidence.depth)), task_of(run, task), "nll"))
    if guessed is None or trained is None or trained.high >= guessed:
        return None
    return Span(guessed - trained.value, guessed - trained.high, guessed - trained.low)


def _scaled(rows: Mapping[float, Score], scale: Span) -> Iterator[tuple[float, Span]]:
    of_scale = max(scale.high - scale.value, scale.value - scale.low) / scale.value
    for percent, score in rows.items():
        effect = span(score)
        if effect is not None and math.isfinite(effect.value):
            share = effect.times(1 / scale.value)
            reach = abs(share.value) * of_scale
            yield percent, Span(share.value, share.low - reach, share.high + reach)


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
    index = bisect_left(known, percent)
    if index < len(known) and known[index] == percent:
        return curve[percent]
    left, right = known[index - 1], known[index]
    weight = (percent - left) / (right - left)
    one, other = curve[left], curve[right]
    ends = ((one.value, other.value), (one.low, other.low), (one.high, other.high))
    return Span(*((1 - weight) * start + weight * end for start, end in ends))


def _most_lost(first: Shares, second: Shares, percents: Shares) -> float:
    return max(_at(curve, percent).value for curve in (first, second) for percent in percents)
