"""The one size of window that the headline speaks about, and the strategies met there.

Curves differ most, and are distinguished best, about half the depth; the published comparison reads there too.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from layerwise.plan.painters import WINDOW
from layerwise.report.evidence import Evidence
from layerwise.report.sweep.curves import Point, curve_families, curves, half_depth
from layerwise.report.sweep.loops import FAMILIES

PUBLISHED_FAMILY = "painters"


@dataclass(frozen=True, slots=True)
class LayerWindow:
    """So many affected layers, in one family."""

    family: str
    affected: int


def half_window(evidence: Evidence) -> LayerWindow | None:
    """The window nearest to half the depth, in the published family where it was run.

    Where no family has windows of several sizes it is the first of those that were asked for by their layers. Numbers
    of loops and gains are no strategies to be ranked.
    """
    families = tuple(family for family in curve_families(evidence) if family not in FAMILIES)
    families = families or given_windows(evidence)
    if not families:
        return None
    family = PUBLISHED_FAMILY if PUBLISHED_FAMILY in families else families[0]
    affected = half_depth(evidence, family)
    return None if affected is None else LayerWindow(family, affected)


def given_windows(evidence: Evidence) -> tuple[str, ...]:
    """The families of the windows that were asked for by their layers."""
    return tuple(family for family in evidence.families if family.startswith(f"{WINDOW} "))


def ranked(evidence: Evidence, window: LayerWindow, task: str) -> tuple[tuple[str, Point], ...]:
    """Every strategy at the window with its point on a task, from least to most harmful."""
    points = ((curve.strategy, curve.at(window.affected)) for curve in curves(evidence, window.family, task))
    present = {strategy: point for strategy, point in points if point is not None}
    return tuple(sorted(distinct(present).items(), key=lambda row: row[1].value))


def distinct(points: Mapping[str, Point]) -> dict[str, Point]:
    """The points of strategies that differ: of two whose plans are the same ones, the first.

    Of two layers there is one other order, so that a random order of them is the reverse.
    """
    first: dict[frozenset[str], str] = {}
    for strategy, point in points.items():
        first.setdefault(frozenset(record.plan for record in point.records), strategy)
    return {strategy: points[strategy] for strategy in first.values()}


def on_tasks(evidence: Evidence, window: LayerWindow, strategy: str) -> dict[str, Point]:
    """One strategy at the window: task to point, for every task where it was measured."""
    points = {task: dict(ranked(evidence, window, task)).get(strategy) for task in evidence.named_tasks}
    return {task: point for task, point in points.items() if point is not None}


def order_strategy(evidence: Evidence, window: LayerWindow) -> str | None:
    """The strategy that changes only the order, each layer once: the one with most plans, so random before reverse."""
    straight = list(range(evidence.depth))
    orders: dict[str, set[str]] = defaultdict(set)
    for record in evidence.data.plans:
        plan = evidence.schedules.get(record.plan)
        if plan is None or plan.has_sublayers() or LayerWindow(record.family, record.affected) != window:
            continue
        order = list(plan.order())
        if record.stages == record.evaluations and sorted(order) == straight and order != straight:
            orders[record.strategy].add(record.plan)
    return max(orders, key=lambda strategy: len(orders[strategy]), default=None)
