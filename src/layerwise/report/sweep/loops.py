"""Loops of parallel layers, read from rows: the best count of each window, its line, and the gain as its null."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean

from layerwise.report.claims.claim import Position, span
from layerwise.report.claims.contrasts import ALIKE, OF_COSTS, contrast_rows
from layerwise.report.claims.painters import LOOP_COUNT, PER_LAYER
from layerwise.report.evidence import DELTA, Evidence
from layerwise.report.finding import Finding, Number, State
from layerwise.report.page.number_format import between
from layerwise.report.page.wording import counted
from layerwise.results.rows import Score
from layerwise.results.selection import PRESENT
from layerwise.results.vocabulary import CONTRAST

LOOPED, GAINED = "looped", "gain_sweep"
FAMILIES = (LOOPED, GAINED)
"""The families that are drawn as maps of windows and numbers, and not as curves."""


@dataclass(frozen=True, slots=True)
class LoopGrid:
    """One family on one task: `effects` maps (layers in the window, number of loops or gain) to a score."""

    effects: Mapping[tuple[int, int], Score]

    @property
    def best(self) -> dict[int, int]:
        """The number with the least effect, for each window that has more than one."""
        best: dict[int, int] = {}
        for (size, number), score in sorted(self.effects.items()):
            if size not in best or score.value < self.effects[size, best[size]].value:
                best[size] = number
        several = {size for size, number in self.effects if number != min(n for s, n in self.effects if s == size)}
        return {size: number for size, number in best.items() if size in several}


def loop_grid(evidence: Evidence, family: str, task: str) -> LoopGrid:
    """The effects of a family whose strategies name a number, as `loops=3`; empty where it was not run."""
    effects = {}
    for record in evidence.data.plans:
        number = record.strategy.partition("=")[2]
        score = evidence.effect(record.plan, task, DELTA) if record.family == family and number.isdecimal() else None
        if score is not None and math.isfinite(score.value):
            effects[record.affected, int(number)] = score
    return LoopGrid(effects)


def by_window(evidence: Evidence, metric: str) -> dict[int, Score]:
    """The contrasts of the loops that were made window by window, by the number of its layers."""
    rows = evidence.run.rows.where(measure=CONTRAST, subject=LOOP_COUNT, metric=metric, amount=PRESENT)
    return {int(size): row for size, row in sorted(rows.along("amount").items())}


def contrast_of_loops(evidence: Evidence, metric: str) -> Score | None:
    """A contrast of the claim that more layers take more loops."""
    return contrast_rows(evidence, LOOP_COUNT).get(metric)


def line(evidence: Evidence) -> tuple[float, float] | None:
    """Intercept and slope of the line through the best counts; `None` where no slope was measured."""
    slope, best = contrast_of_loops(evidence, "slope"), by_window(evidence, "best_loops")
    if slope is None or not best:
        return None
    return fmean(score.value for score in best.values()) - slope.value * fmean(best), slope.value


def loop_finding(evidence: Evidence) -> Finding | None:
    """Is a loop more than a gain, on text that chose neither?"""
    slope = contrast_of_loops(evidence, "slope")
    relative, nats = (contrast_of_loops(evidence, metric) for metric in ("gain:loops", "gain-loops"))
    if slope is None or relative is None or nats is None:
        return None
    bounds = span(relative)
    position: Position = "open" if bounds is None else bounds.position(ALIKE)
    windows = counted(len(by_window(evidence, "gain-loops")), "window")
    answer = (
        f"{_ANSWERS[position]} Over {windows}, on the half of the text that did not choose them, the best gain in one"
        " pass costs ",
        Number(_shown(nats)),
        " nats per token more than the best number of loops, ",
        Number(_shown(relative)),
        f" {OF_COSTS}. A layer more in parallel takes ",
        Number(_shown(slope)),
        " loops more.",
    )
    state: State = "described" if bounds is None else "unresolved" if position == "open" else "resolved"
    return Finding("Is a loop of parallel layers more than a gain?", answer, state)


_ANSWERS: dict[Position, str] = {
    "above": "Yes.",
    "within": "No: a gain does as well.",
    "below": "No: a gain does better.",
    "open": "Not resolvable.",
}


def slope_in_words(evidence: Evidence) -> str:
    """The slope with its interval, and how many windows are best at the end of what was run."""
    slope, ends = contrast_of_loops(evidence, "slope"), contrast_of_loops(evidence, "at_end")
    if slope is None or ends is None:
        return ""
    last = f" {counted(int(ends.value), 'window')} best at the greatest number that was run." if ends.value else ""
    return (
        f"A layer more in parallel takes {_shown(slope)} loops more: the dashed line. Less than ±{PER_LAYER:g} is none."
        f"{last}"
    )


def _shown(score: Score) -> str:
    return between(score.value, score.low, score.high, signed=True)
