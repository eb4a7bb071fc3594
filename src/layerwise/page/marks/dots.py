"""Dots with intervals, and faint dots for single seeds."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from typing import Any

from layerwise.page.data import ReportData
from layerwise.page.figures import frame
from layerwise.page.figures.frame import Figure, Shape, Trace
from layerwise.page.figures.palette import fade, light_color
from layerwise.page.marks.mark import Mark
from layerwise.results.rows import Score
from layerwise.results.selection import PRESENT, Rows

LANE = 13  # height of a lane
GAP = 16  # between rows
EDGES = 52  # the axis and its title
SEED_SIZE, SIZE = 5, 9


@dataclass(frozen=True, slots=True)
class Lane:
    name: str
    slot: int
    rows: Mapping[str, Score]
    seeds: Mapping[str, Sequence[Score]]


@dataclass(frozen=True, kw_only=True)
class Dots(Mark):
    """A horizontal row for each value of the column `y`, in which each series has a dot.

    Scores with a value in the column `faint` are single draws, shown as faint dots. Scores whose column `against` is
    `chance` are shown as a dotted line. `from_zero` makes the axis include zero. `allowed` is the range of a gray band,
    or a function that returns it. Values below `floor` are drawn at `floor`.
    """

    y: str = "task"
    faint: str = "seed"
    chance: str = ""
    from_zero: bool = False
    floor: float = -math.inf
    allowed: tuple[float, float] | Callable[[Rows], tuple[float, float] | None] | None = None
    row_words: Callable[[Any], str] = str

    def figure(self, rows: Rows, data: ReportData, slots: Mapping[str, int], all_rows: Rows) -> Figure | None:
        chances = {
            self._row(row): self.show.scale_score(row).value for row in rows.where(against=self.chance) if self.chance
        }
        rows = rows.where(against=None) if self.chance else rows
        means, single = rows.where(**{self.faint: None}), rows.where(**{self.faint: PRESENT})
        lanes = [self._lane(name, means, single, slots) for name in (rows.axis(self.series) if self.series else ("",))]
        names = list(dict.fromkeys(name for lane in lanes for name in lane.rows))
        row_of = {name: at for at, name in enumerate(names)}
        height = GAP + LANE * max((sum(name in lane.rows for lane in lanes) for name in names), default=1)
        traces = [trace for lane in lanes for trace in self._dots(lane, _heights(lane, lanes, row_of, LANE / height))]
        if chances:
            traces.append(_chance({row_of[name]: value for name, value in chances.items() if name in row_of}))
        allowed = self.allowed(rows) if callable(self.allowed) else self.allowed
        bands = [] if allowed is None else [frame.vertical_band(*allowed, fade(light_color("muted"), 0.16))]
        return frame.make_figure(
            EDGES + len(names) * height,
            traces,
            y=frame.row_axis(names, showgrid=False),
            shapes=[*self._reference(), *bands],
            x={"title": self.show.axis, "range": self.show.span or self._span(lanes, [*chances.values()])},
            margin={"l": 8, "r": 16, "t": 8, "b": 44},
        )

    def _row(self, row: Score) -> str:
        return self.row_words(getattr(row, self.y))

    def _lane(self, name: str, means: Rows, single: Rows, slots: Mapping[str, int]) -> Lane:
        condition = {self.series: name} if self.series else {}
        seeds: dict[str, list[Score]] = defaultdict(list)
        for row in single.where(**condition):
            seeds[self._row(row)].append(self.show.scale_score(row))
        cells = {self._row(row): self.show.scale_score(row) for row in means.where(**condition)}
        return Lane(self.words(name) if name else self.title, slots.get(name, 0), cells, seeds)

    def _reference(self) -> list[Shape]:
        return [] if self.show.reference is None else [frame.vertical_line(self.show.reference, **frame.REFERENCE)]

    def _span(self, lanes: Sequence[Lane], chances: list[float]) -> tuple[float, float] | None:
        scores = [
            row
            for lane in lanes
            for row in (*lane.rows.values(), *(s for scores_of_row in lane.seeds.values() for s in scores_of_row))
        ]
        lifted = map(self._lifted, scores)
        bounds = [bound for score in lifted for bound in (score.value, score.low, score.high) if bound is not None]
        bounds += [*chances, *([] if self.show.reference is None else [self.show.reference])]
        if self.from_zero or not bounds:
            return frame.compute_limits(bounds)
        air = 0.06 * (max(bounds) - min(bounds)) or 0.5
        return min(bounds) - air, max(bounds) + air

    def _dots(self, lane: Lane, heights: Mapping[str, float]) -> list[Trace]:
        color, _, symbol = frame.series_style(lane.slot)
        faint = [(name, score) for name, scores in lane.seeds.items() if name in heights for score in scores]
        drawn = [self._lifted(score) for score in lane.rows.values()]
        shared = {"mode": "markers", "legendgroup": lane.name, "name": escape(lane.name)}
        seeds = frame.scatter(
            x=[score.value for _, score in faint],
            y=[heights[name] for name, _ in faint],
            marker={"color": fade(color, 0.35), "size": SEED_SIZE, "line": {"width": 0}},
            text=[self._hover(f"{self.faint} {getattr(score, self.faint)}", name, score) for name, score in faint],
            **shared,
        )
        means = frame.scatter(
            x=[score.value for score in drawn],
            y=[heights[name] for name in lane.rows],
            marker={"color": color, "symbol": symbol, "size": SIZE},
            error_x=frame.error_bars(drawn, color),
            text=[self._hover(lane.name, name, score) for name, score in lane.rows.items()],
            **shared,
        )
        return [seeds, means] if faint else [means]

    def _lifted(self, score: Score) -> Score:
        low, high = (bound and max(bound, self.floor) for bound in (score.low, score.high))
        return replace(score, value=max(score.value, self.floor), low=low, high=high)

    def _hover(self, who: str, row: str, score: Score) -> str:
        return f"<b>{escape(who)}</b>, {escape(row)}<br>{frame.interval(score, signed=self.show.signed)}"


def _heights(lane: Lane, lanes: Sequence[Lane], row_of: Mapping[str, int], step: float) -> dict[str, float]:
    heights = {}
    for name in lane.rows:
        present = [each.name for each in lanes if name in each.rows]
        heights[name] = row_of[name] + (present.index(lane.name) - (len(present) - 1) / 2) * step
    return heights


def _chance(values: Mapping[int, float]) -> Trace:
    return frame.scatter(
        x=[part for value in values.values() for part in (value, value, None)],
        y=[part for at in values for part in (at - 0.42, at + 0.42, None)],
        mode="lines",
        line={"color": light_color("ink"), "dash": "dot", "width": 1.5},
        opacity=0.6,
    )
