"""Degradation curves: one strategy, one task, the effect at every number of affected layers.

A strategy that was drawn several times (random order) is a mean over its draws. Its interval holds two errors that do
not share a cause: the draws differ (Student's t over the draws), and all draws see the same documents (the mean
half-width of their own intervals); the two add in quadrature.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from statistics import fmean, median, stdev

from scipy.special import stdtrit

from layerwise.report.evidence import DELTA, Evidence
from layerwise.results.rows import PlanRecord, Score


@dataclass(frozen=True, slots=True)
class Point:
    """One point on a curve: the mean over `scores`, one per draw, with its interval.

    `mde` is the median minimum detectable effect of the draws.
    """

    affected: int
    value: float
    low: float | None
    high: float | None
    mde: float | None
    records: tuple[PlanRecord, ...]
    scores: tuple[Score, ...]


@dataclass(frozen=True, slots=True)
class Curve:
    """A strategy's points, by number of affected layers."""

    strategy: str
    points: tuple[Point, ...]

    def at(self, affected: int) -> Point | None:
        """The point at so many affected layers."""
        return next((point for point in self.points if point.affected == affected), None)


def curves(evidence: Evidence, family: str, task: str, metric: str = DELTA) -> tuple[Curve, ...]:
    """The curves of a family on a task, a strategy each, in the order of the run."""
    return scored_curves(evidence, family, lambda plan: evidence.effect(plan, task, metric))


def scored_curves(evidence: Evidence, family: str, score_of: Callable[[str], Score | None]) -> tuple[Curve, ...]:
    """The curves of a family, of whatever score a plan has."""
    grouped: dict[str, dict[int, list[tuple[PlanRecord, Score]]]] = defaultdict(lambda: defaultdict(list))
    for record in evidence.data.plans:
        score = score_of(record.plan) if record.family == family else None
        if score is not None and math.isfinite(score.value):
            grouped[record.strategy][record.affected].append((record, score))
    return tuple(
        Curve(strategy, tuple(_point(affected, by_affected[affected]) for affected in sorted(by_affected)))
        for strategy, by_affected in grouped.items()
    )


def _point(affected: int, rows: list[tuple[PlanRecord, Score]]) -> Point:
    records = tuple(record for record, _ in rows)
    scores = tuple(score for _, score in rows)
    mdes = [score.mde for score in scores if score.mde is not None]
    value = fmean(score.value for score in scores)
    low, high = _interval(value, scores)
    return Point(affected, value, low, high, median(mdes) if mdes else None, records, scores)


def _interval(value: float, scores: tuple[Score, ...]) -> tuple[float | None, float | None]:
    if len(scores) == 1:
        return scores[0].low, scores[0].high
    bounds = [(s.value - s.low, s.high - s.value) for s in scores if s.low is not None and s.high is not None]
    if len(bounds) < len(scores):
        return None, None
    spread = stdev(score.value for score in scores) / math.sqrt(len(scores))
    between_draws = float(stdtrit(len(scores) - 1, 0.975)) * spread
    below = math.hypot(between_draws, fmean(bound[0] for bound in bounds))
    above = math.hypot(between_draws, fmean(bound[1] for bound in bounds))
    return value - below, value + above


def curve_families(evidence: Evidence) -> tuple[str, ...]:
    """The families that have a curve: some strategy of theirs was run at two or more sizes."""
    sizes: dict[tuple[str, str], set[int]] = defaultdict(set)
    for record in evidence.data.plans:
        sizes[record.family, record.strategy].add(record.affected)
    return tuple(
        family
        for family in evidence.families
        if any(len(members) > 1 for (owner, _), members in sizes.items() if owner == family)
    )


def half_depth(evidence: Evidence, family: str) -> int | None:
    """The number of affected layers nearest to half the depth, among those that most strategies were run at."""
    strategies: dict[int, set[str]] = defaultdict(set)
    for record in evidence.data.plans:
        if record.family == family:
            strategies[record.affected].add(record.strategy)
    if not strategies:
        return None
    most = max(len(members) for members in strategies.values())
    shared = [affected for affected, members in strategies.items() if len(members) == most]
    return min(shared, key=lambda affected: (abs(2 * affected - evidence.depth), affected))
