"""Curves: the effect of each strategy as a function of the number of layers that it affects.

A plan that changes one window of layers is recognized by the order of its layers.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from statistics import fmean, median
from typing import Any

from layerwise.page.data import ReportData
from layerwise.plan.painters import half_window
from layerwise.results.rows import PlanRecord, Score
from layerwise.results.selection import Rows
from layerwise.results.vocabulary import CONTRAST, DELTA, STRATEGIES

DROPPED, SWAPPED = "dropped", "swapped"
REPEATED = {2: "repeated", 3: "repeated three times"}

Change = tuple[str, int, int]
"""Name of a change of a layer window, and the first and last layer of the window."""


def classify_change(order: Sequence[int], depth: int) -> Change | None:
    """Return which window of layers is dropped, swapped or repeated in an order of layers.

    Return None if the order is the original one or differs from it in another way.

    >>> classify_change([0, 1, 4, 5], 6), classify_change([0, 2, 1, 3], 4)
    (('dropped', 2, 3), ('swapped', 1, 2))
    >>> classify_change([0, 1, 2, 1, 2, 3], 4), classify_change([2, 0], 3)
    (('repeated', 1, 2), None)
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


def find_changes(data: ReportData) -> dict[Change, str]:
    plans: dict[Change, str] = {}
    for text, record in data.records.items():
        plan = data.schedules.get(text)
        if (
            plan is not None
            and record.stages == record.evaluations
            and all(step.sublayer is None and step.source is None for step in plan.steps())
        ):
            change = classify_change(plan.order(), data.depth)
            if change is not None:
                plans.setdefault(change, text)
    return plans


def read_changes(data: ReportData) -> Rows:
    return Rows(
        replace(score, layer=first, to_layer=last, condition=done)
        for (done, first, last), plan in sorted(find_changes(data).items(), key=lambda change: change[0][1:])
        for task in data.tasks
        if (score := data.effect(plan, task)) is not None
    )


def read_single_changes(data: ReportData, done: str = DROPPED) -> Rows:
    return Rows(row for row in read_changes(data).where(condition=done) if done != DROPPED or row.layer == row.to_layer)


MeanOf = Callable[[str, str, int], Score | None]
"""Returns the measured mean over random draws for a family, a strategy and a number of affected layers, or None."""


def average_draws(
    records: Iterable[PlanRecord], score_of: Callable[[str], Score | None], mean_of: MeanOf = lambda *_: None
) -> Iterator[Score]:
    """Yield the score of every strategy at every number of affected layers.

    If a strategy has several random draws at one number of layers, yield the score of each draw and then their mean.
    If `mean_of` returns a row for this mean, its value and interval are used.
    """
    grouped: dict[tuple[str, str], dict[int, list[Score]]] = defaultdict(lambda: defaultdict(list))
    for record in records:
        score = score_of(record.plan)
        if score is not None and math.isfinite(score.value):
            grouped[record.family, record.strategy][record.affected].append(replace(score, plan=record.plan))
    for (family, strategy), by_size in grouped.items():
        for affected, scores in sorted(by_size.items()):
            of_size: dict[str, Any] = {"family": family, "strategy": strategy, "affected": affected}
            if len(scores) > 1:
                yield from (replace(score, seed=draw, **of_size) for draw, score in enumerate(scores))
            yield replace(_mean(scores, mean_of(family, strategy, affected)), **of_size)


def _mean(scores: list[Score], measured: Score | None) -> Score:
    if len(scores) == 1:
        return scores[0]
    value, mdes = fmean(score.value for score in scores), [score.mde for score in scores if score.mde is not None]
    low, high, mde = (None, None, median(mdes) if mdes else None)
    if measured is not None:
        value, low, high, mde = measured.value, measured.low, measured.high, measured.mde or mde
    return replace(scores[0], value=value, low=low, high=high, p=None, p_adjusted=None, mde=mde, plan=None)


def means_over_draws(data: ReportData, claim: str, task: str, metric: str) -> MeanOf:
    rows = data.rows.where(measure=CONTRAST, claim=claim, task=task, metric=metric, against=None)
    by_curve = {(row.family, row.strategy, row.affected): row for row in rows}
    return lambda family, strategy, affected: by_curve.get((family, strategy, affected))


def compute_curves(data: ReportData, metric: str = DELTA) -> Iterator[Score]:
    for task in data.tasks:
        mean_of = means_over_draws(data, STRATEGIES, task, metric)
        yield from average_draws(data.swept, partial(data.effect, task=task, metric=metric), mean_of)


def make_level_rows(rows: Rows, references: Mapping[str, float | tuple[float, float]]) -> Iterator[Score]:
    for size in sorted(rows.axis("affected")):
        for name, level in references.items():
            low, high = level if isinstance(level, tuple) else (None, None)
            yield replace(
                rows[0],
                value=0.0 if isinstance(level, tuple) else level,
                low=low,
                high=high,
                against=name,
                affected=size,
                strategy=None,
                seed=None,
                plan=None,
            )


def read_half_depth(data: ReportData) -> Rows:
    window = half_window(data.swept, data.depth)
    if window is None:
        return Rows()
    rows = Rows(compute_curves(data)).where(family=window.family, affected=window.affected)
    return Rows(row for group in rows.by("task").values() for row in drop_duplicates(group))


def drop_duplicates(rows: Rows) -> Iterator[Score]:
    seen: set[frozenset[str]] = set()
    for group in rows.by("strategy").values():
        plans = frozenset(group.axis("plan"))
        if plans not in seen:
            seen.add(plans)
            yield from group
