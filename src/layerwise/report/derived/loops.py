"""Loops of parallel layers: the effect of every number, the best of each window, its line, and the gain as its null."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from statistics import fmean

from layerwise.report.data import ReportData
from layerwise.results.rows import Score
from layerwise.results.selection import PRESENT, Rows
from layerwise.results.vocabulary import ALL, CONTRAST, GAINED, LOOPED

LOOP_COUNT = "loop_count"
"""The claim whose rows hold the best loop counts."""
BEST = {LOOPED: "best_loops", GAINED: "best_gain"}
"""The contrast that holds the best number of each window, with its interval, by family."""
FITTED = "line through the best"


def numbered(data: ReportData) -> Iterator[Score]:
    """The effect of every window of `amount` layers with `other` loops, or that gain, on every task; the family is the
    `part`."""
    for record in data.swept:
        number = record.strategy.partition("=")[2]
        if record.family not in BEST or not number.isdecimal():
            continue
        for task in data.tasks:
            score = data.effect(record.plan, task)
            if score is not None and math.isfinite(score.value):
                yield replace(score, part=record.family, amount=float(record.affected), other=int(number))


def best(data: ReportData) -> Iterator[Score]:
    """The number with the least effect, for each window that has more than one, and the line through those of loops.

    The interval, and the line, are those of the contrasts, which are of the whole text.
    """
    for family, of in Rows(numbered(data)).by("part").items():
        for task, rows in of.by("task").items():
            whole = task == data.tasks[0]
            bounds = by_window(data, BEST[family]) if whole else {}
            widths = {width: own for width, own in rows.by("amount").items() if len(own.axis("other")) > 1}
            for width, own in widths.items():
                least = min(own, key=lambda row: (row.value, row.other))
                known, of_one = bounds.get(width), {"task": task, "part": family, "amount": width}
                low, high = (known.low, known.high) if known else (None, None)
                yield Score(CONTRAST, "best", float(least.other or 0), low, high, **of_one)
                if whole and family == LOOPED and (fitted := line(data)) is not None:
                    yield Score(CONTRAST, "best", fitted[0] + fitted[1] * width, **of_one, against=FITTED)


def by_window(data: ReportData, metric: str) -> dict[float, Score]:
    """The contrasts of the loops that were made window by window, by the number of its layers."""
    rows = data.rows.where(measure=CONTRAST, claim=LOOP_COUNT, metric=metric, amount=PRESENT)
    return dict(sorted(rows.along("amount").items()))


def over_windows(data: ReportData, metric: str) -> Score | None:
    """A contrast of the loops over all windows."""
    return data.rows.one(measure=CONTRAST, claim=LOOP_COUNT, metric=metric, task=ALL, amount=None)


def line(data: ReportData) -> tuple[float, float] | None:
    """Intercept and slope of the line through the best counts; `None` where no slope was measured."""
    slope, counts = over_windows(data, "slope"), by_window(data, BEST[LOOPED])
    if slope is None or not counts:
        return None
    return fmean(score.value for score in counts.values()) - slope.value * fmean(counts), slope.value
