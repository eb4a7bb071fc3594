"""Curves of plans: the effect of a strategy at every number of layers that it affects, and the size for comparisons.

The interval of a mean over draws adds in quadrature Student's t over the draws and the mean half-width of their
intervals, since all draws use the same documents. Rows: strategy `condition`, family `part`, affected layers `amount`,
draw `seed`. Plans that change one window are recognized by their schedule.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, median, stdev
from typing import Any

from scipy.special import stdtrit

from layerwise.plan.painters import GIVEN, WINDOW
from layerwise.report.data import ReportData
from layerwise.results.rows import PlanRecord, Score
from layerwise.results.selection import Rows
from layerwise.results.vocabulary import DELTA, GAINED, LOOPED

DROPPED, SWAPPED = "dropped", "swapped"
REPEATED = {2: "repeated", 3: "repeated three times"}

Change = tuple[str, int, int]
"""What is done, and the first and the last layer that it is done to."""


def change_of(order: Sequence[int], depth: int) -> Change | None:
    """What an order of layers does to one window, all else running as trained; `None` where it is something else.

    >>> change_of([0, 1, 4, 5], 6), change_of([0, 2, 1, 3], 4), change_of([0, 1, 2, 1, 2, 3], 4), change_of([2, 0], 3)
    (('dropped', 2, 3), ('swapped', 1, 2), ('repeated', 1, 2), None)
    """
    straight, order = list(range(depth)), list(order)
    same = next((at for at, pair in enumerate(zip(order, straight, strict=False)) if pair[0] != pair[1]), None)
    at = min(len(order), depth) if same is None else same
    more = len(order) - depth
    if more < 0 and order[at:] == straight[at - more :]:
        return DROPPED, at, at - more - 1
    if more == 0 and order[at:] == [at + 1, at, *straight[at + 2 :]]:
        return SWAPPED, at, at + 1
    for times, done in REPEATED.items():
        width, rest = divmod(more, times - 1)
        if more > 0 and not rest and order[at:] == (times - 1) * straight[max(0, at - width) : at] + straight[at:]:
            return done, at - width, at - 1
    return None


def changes(data: ReportData) -> dict[Change, str]:
    """Return every change of one window with the first plan that makes it, for plain sequences of whole layers only."""
    plans: dict[Change, str] = {}
    for text, record in data.records.items():
        plan = data.schedules.get(text)
        if (
            plan is not None
            and record.stages == record.evaluations
            and all(step.sublayer is None and step.source is None for step in plan.steps())
        ):
            change = change_of(plan.order(), data.depth)
            if change is not None:
                plans.setdefault(change, text)
    return plans


def changed(data: ReportData) -> Rows:
    """Return the cost of each change of one window per task: `condition` applied to layers `layer` to `other`."""
    return Rows(
        replace(score, layer=first, other=last, condition=done)
        for (done, first, last), plan in sorted(changes(data).items(), key=lambda change: change[0][1:])
        for task in data.tasks
        if (score := data.effect(plan, task)) is not None
    )


def single(data: ReportData, done: str = DROPPED) -> Rows:
    """What leaving out each layer alone costs, or swapping it with the next, on every task."""
    return Rows(row for row in changed(data).where(condition=done) if done != DROPPED or row.layer == row.other)


PUBLISHED = "painters"
"""The family of the published strategies."""


def averaged(records: Iterable[PlanRecord], score_of: Callable[[str], Score | None]) -> Iterator[Score]:
    """The curves of plans, whatever score each has: of every strategy the mean at every size, and its draws."""
    grouped: dict[tuple[str, str], dict[int, list[Score]]] = defaultdict(lambda: defaultdict(list))
    for record in records:
        score = score_of(record.plan)
        if score is not None and math.isfinite(score.value):
            grouped[record.family, record.strategy][record.affected].append(replace(score, plan=record.plan))
    for (family, strategy), by_size in grouped.items():
        for affected, scores in sorted(by_size.items()):
            of_size: dict[str, Any] = {"part": family, "condition": strategy, "amount": float(affected)}
            if len(scores) > 1:
                yield from (replace(score, seed=draw, **of_size) for draw, score in enumerate(scores))
            yield replace(_mean(scores), **of_size)


def _mean(scores: list[Score]) -> Score:
    if len(scores) == 1:
        return scores[0]
    value, mdes = fmean(score.value for score in scores), [score.mde for score in scores if score.mde is not None]
    low, high = _interval(value, scores)
    return replace(
        scores[0],
        value=value,
        low=low,
        high=high,
        p=None,
        p_adjusted=None,
        mde=median(mdes) if mdes else None,
        plan=None,
    )


def _interval(value: float, scores: list[Score]) -> tuple[float | None, float | None]:
    bounds = [(s.value - s.low, s.high - s.value) for s in scores if s.low is not None and s.high is not None]
    if len(bounds) < len(scores):
        return None, None
    spread = stdev(score.value for score in scores) / math.sqrt(len(scores))
    between_draws = float(stdtrit(len(scores) - 1, 0.975)) * spread
    below, above = (math.hypot(between_draws, fmean(bound[side] for bound in bounds)) for side in (0, 1))
    return value - below, value + above


def curves(data: ReportData, metric: str = DELTA) -> Iterator[Score]:
    """The curves of a sweep on every task."""
    for task in data.tasks:
        yield from averaged(data.swept, lambda plan, task=task: data.effect(plan, task, metric))  # type: ignore[misc]


def levels(rows: Rows, named: Mapping[str, float | tuple[float, float]]) -> Iterator[Score]:
    """What the rows of one figure stand beside at every size: a level, or a band about zero."""
    for size in sorted(rows.axis("amount")):
        for name, level in named.items():
            low, high = level if isinstance(level, tuple) else (None, None)
            yield replace(
                rows[0],
                value=0.0 if isinstance(level, tuple) else level,
                low=low,
                high=high,
                against=name,
                amount=size,
                condition=None,
                seed=None,
                plan=None,
            )


def curve_families(data: ReportData) -> tuple[str, ...]:
    """Return the families with a strategy that was run at two or more sizes, without plans given one by one."""
    sizes: dict[tuple[str, str], set[int]] = defaultdict(set)
    for record in data.swept:
        if record.family != GIVEN:
            sizes[record.family, record.strategy].add(record.affected)
    return tuple(dict.fromkeys(family for (family, _), members in sizes.items() if len(members) > 1))


@dataclass(frozen=True, slots=True)
class LayerWindow:
    """So many affected layers, in one family: curves differ most, and are distinguished best, about half the depth."""

    family: str
    affected: int


def half_window(data: ReportData) -> LayerWindow | None:
    """Return the window nearest to half the depth, at the size that most strategies were run at.

    The published family is preferred, then the first windows given by layers. Numbers of loops and gains do not count.
    """
    families = tuple(family for family in curve_families(data) if family not in (LOOPED, GAINED))
    families = families or tuple(each.family for each in data.swept if each.family.startswith(f"{WINDOW} "))
    if not families:
        return None
    family = PUBLISHED if PUBLISHED in families else families[0]
    return LayerWindow(family, half_depth((each for each in data.swept if each.family == family), data.depth))


def half_depth(records: Iterable[PlanRecord], depth: int) -> int:
    """The number of affected layers nearest to half the depth, of those that most strategies were run at."""
    strategies: dict[int, set[str]] = defaultdict(set)
    for record in records:
        strategies[record.affected].add(record.strategy)
    most = max(map(len, strategies.values()))
    shared = [affected for affected, members in strategies.items() if len(members) == most]
    return min(shared, key=lambda affected: (abs(2 * affected - depth), affected))


def at_half(data: ReportData) -> Rows:
    """What every strategy does at the window of half the depth, task by task; none where there is no such window."""
    window = half_window(data)
    if window is None:
        return Rows()
    rows = Rows(curves(data)).where(part=window.family, amount=window.affected)
    return Rows(row for own in rows.by("task").values() for row in distinct(own))


def distinct(rows: Rows) -> Iterator[Score]:
    """Return the rows of distinct strategies: of two with the same plans, the first."""
    seen: set[frozenset[str]] = set()
    for own in rows.by("condition").values():
        plans = frozenset(own.axis("plan"))
        if plans not in seen:
            seen.add(plans)
            yield from own


def order_strategy(data: ReportData) -> str | None:
    """Return the order-only strategy at half the depth with the most plans (random before reverse)."""
    straight = list(range(data.depth))
    window, orders = half_window(data), defaultdict[str, set[str]](set)
    for record in data.swept:
        plan = data.schedules.get(record.plan)
        if plan is None or plan.has_sublayers() or LayerWindow(record.family, record.affected) != window:
            continue
        order = list(plan.order())
        if record.stages == record.evaluations and sorted(order) == straight and order != straight:
            orders[record.strategy].add(record.plan)
    return max(orders, key=lambda strategy: len(orders[strategy]), default=None)
