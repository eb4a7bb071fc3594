"""Dots in rows, one lane for each series: what was measured with its interval, its seeds as faint dots."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from statistics import median
from typing import Any

from layerwise.report.data import ReportData
from layerwise.report.figures.frame import (
    LEGEND,
    REFERENCE,
    Figure,
    Trace,
    framed,
    interval,
    limits,
    row_axis,
    scatter,
    series_style,
    upright_band,
    upright_line,
    whiskers,
)
from layerwise.report.figures.palette import faded, light
from layerwise.report.marks.mark import Mark
from layerwise.report.text.number_format import tidy
from layerwise.results.rows import Score
from layerwise.results.selection import PRESENT, Rows

LANE = 13  # height of one arm within a row
AIR = 16  # between rows
EDGES = 52  # the axis and its title
SEED_SIZE, SIZE = 5, 9


@dataclass(frozen=True, slots=True)
class DotArm:
    """One arm: a score for every row that it has, and those of its seeds."""

    name: str
    slot: int
    rows: Mapping[str, Score]
    seeds: Mapping[str, Sequence[Score]] = field(default_factory=dict)


def dots(
    arms: Sequence[DotArm],
    *,
    across: str,
    reference: float | None = None,
    chance: Mapping[str, float] | None = None,
    from_zero: bool = False,
    signed: bool = False,
    span: tuple[float, float] | None = None,
    rows: Sequence[str] | None = None,
    allowed: tuple[float, float] | None = None,
) -> Figure:
    """A row for each name that any arm has, a lane in it for each arm.

    `reference` is a dotted line through all rows, `chance` a short dotted line in each; `from_zero` keeps zero on the
    axis, `signed` shows the sign in the hover text, `allowed` is a grey band through all rows. `span` fixes the axis
    and `rows` which there are, for figures that stand side by side.
    """
    names = list(rows or dict.fromkeys(name for arm in arms for name in arm.rows))
    row_of = {name: at for at, name in enumerate(names)}
    crowded = max((sum(name in arm.rows for arm in arms) for name in names), default=1)
    height = AIR + LANE * crowded
    heights = [_heights(arm, arms, row_of, LANE / height) for arm in arms]
    traces = [trace for arm, at in zip(arms, heights, strict=True) for trace in _arm(arm, at, signed)]
    if chance:
        traces.append(_chance({row_of[name]: value for name, value in chance.items() if name in row_of}))
    return framed(
        EDGES + len(names) * height,
        traces,
        x={"title": across, "range": span or _span(arms, reference, chance or {}, from_zero)},
        y=row_axis(names, showgrid=False),
        shapes=[
            *([] if reference is None else [upright_line(reference, **REFERENCE)]),
            *([] if allowed is None else [upright_band(*allowed, faded(light("muted"), 0.16))]),
        ],
        margin={"l": 8, "r": 16, "t": 8, "b": 44},
    )


def _span(
    arms: Sequence[DotArm], reference: float | None, chance: Mapping[str, float], from_zero: bool
) -> tuple[float, float] | None:
    """All dots, whiskers and chances, with a little air; zero only where it is asked for."""
    scores = [score for arm in arms for score in (*arm.rows.values(), *(s for of in arm.seeds.values() for s in of))]
    bounds = [bound for score in scores for bound in (score.value, score.low, score.high) if bound is not None]
    bounds += [*chance.values(), *([] if reference is None else [reference])]
    if from_zero or not bounds:
        return limits(bounds)
    air = 0.06 * (max(bounds) - min(bounds)) or 0.5
    return min(bounds) - air, max(bounds) + air


def _heights(arm: DotArm, arms: Sequence[DotArm], row_of: Mapping[str, int], lane: float) -> dict[str, float]:
    """Where an arm stands in each of its rows: the arms that have the row share it, in their order."""
    heights = {}
    for name in arm.rows:
        present = [each.name for each in arms if name in each.rows]
        heights[name] = row_of[name] + (present.index(arm.name) - (len(present) - 1) / 2) * lane
    return heights


def _arm(arm: DotArm, heights: Mapping[str, float], signed: bool) -> list[Trace]:
    colour, _, symbol = series_style(arm.slot)
    faint = [(heights[name], name, score) for name, scores in arm.seeds.items() if name in heights for score in scores]
    shared = {"mode": "markers", "legendgroup": arm.name, "name": escape(arm.name)}
    seeds = scatter(
        x=[score.value for _, _, score in faint],
        y=[y for y, _, _ in faint],
        marker={"color": faded(colour, 0.35), "size": SEED_SIZE, "line": {"width": 0}},
        text=[_hover(score.claim or "", name, score, signed) for _, name, score in faint],
        **shared,
    )
    means = scatter(
        x=[score.value for score in arm.rows.values()],
        y=[heights[name] for name in arm.rows],
        marker={"color": colour, "symbol": symbol, "size": SIZE},
        error_x=whiskers(arm.rows.values(), colour),
        text=[_hover(arm.name, name, score, signed) for name, score in arm.rows.items()],
        **shared,
    )
    return [seeds, means] if faint else [means]


def _hover(who: str, row: str, score: Score, signed: bool) -> str:
    return f"<b>{escape(who)}</b>, {escape(row)}<br>{interval(score, signed=signed)}"


def _chance(values: Mapping[int, float]) -> Trace:
    """A short upright line in each row that has one."""
    return scatter(
        x=[part for value in values.values() for part in (value, value, None)],
        y=[part for at in values for part in (at - 0.42, at + 0.42, None)],
        mode="lines",
        line={"color": light("ink"), "dash": "dot", "width": 1.5},
        opacity=0.6,
    )


ROW = 38
HEAD = 62
BINS = 110  # columns of dots across the figure; dots of one column stand above each other
STEP, REACH = 0.085, 0.4  # between two dots of a column, and the most that one is moved, in rows


@dataclass(frozen=True, slots=True)
class Strip:
    """The draws of one row: what each is (its hover text) to its value; `mark` is what they are compared with."""

    name: str
    draws: Mapping[str, float]
    slot: int
    mark: Score | None = None


def strips(
    rows: Sequence[Strip],
    *,
    across: str,
    reference: float | None = None,
    mark: str = "",
    span: tuple[float, float] | None = None,
) -> Figure:
    """A swarm a row with its median as a tick; `mark` names the marks, `reference` is a dotted vertical line.

    `span` fixes the axis, for figures that stand side by side.
    """
    span = span or limits([reference, *(value for row in rows for value in row.draws.values())])
    width = (span[1] - span[0]) / BINS if span else 1.0
    swarms = [_dots(row, y, width) for y, row in enumerate(rows)]
    return framed(
        HEAD + ROW * len(rows) + (18 if mark else 0),
        [*swarms, _medians(rows), *([_marks(rows, mark)] if mark else [])],
        x={"title": across, "zeroline": True, "range": span},
        y=row_axis([row.name for row in rows], ticks=""),
        shapes=[] if reference is None else [upright_line(reference, **REFERENCE)],
        margin={"l": 8, "r": 16, "t": 30 if mark else 8, "b": 40},
        showlegend=bool(mark),
        legend=LEGEND,
    )


def swarmed(values: Sequence[float], width: float) -> list[float]:
    """How far from the middle of its row each dot stands, so that dots of nearly one value do not hide each other.

    >>> swarmed([1.0, 1.01, 5.0, 1.02], 0.1)
    [0.0, -0.085, 0.0, 0.085]
    """
    columns: dict[int, list[int]] = defaultdict(list)
    for index, value in enumerate(values):
        columns[round(value / width)].append(index)
    moved = [0.0] * len(values)
    for members in columns.values():
        step = min(STEP, REACH / max(1, len(members) // 2))
        for rank, index in enumerate(members):
            side = -1.0 if rank % 2 else 1.0
            moved[index] = side * step * ((rank + 1) // 2) or 0.0
    return moved


def _dots(row: Strip, y: int, width: float) -> Trace:
    colour, _, _ = series_style(row.slot)
    values = list(row.draws.values())
    return scatter(
        x=values,
        y=[round(y + moved, 3) for moved in swarmed(values, width)],
        mode="markers",
        marker={"color": faded(colour, 0.6), "size": 5.5, "line": {"width": 0}},
        text=[f"<b>{escape(row.name)}</b><br>{escape(draw)}<br>{tidy(value)}" for draw, value in row.draws.items()],
        name=escape(row.name),
        showlegend=False,
    )


def _medians(rows: Sequence[Strip]) -> Trace:
    drawn = [(y, row) for y, row in enumerate(rows) if row.draws]
    middles = [median(row.draws.values()) for _, row in drawn]
    return scatter(
        x=middles,
        y=[y for y, _ in drawn],
        mode="markers",
        marker={"symbol": "line-ns-open", "size": 26, "line": {"width": 2}, "color": light("ink")},
        text=[
            f"<b>{escape(row.name)}</b><br>median of {len(row.draws)} draws: {tidy(middle)}"
            for (_, row), middle in zip(drawn, middles, strict=True)
        ],
        name="median of the draws",
    )


def _marks(rows: Sequence[Strip], name: str) -> Trace:
    marked = [(y, row.name, row.mark) for y, row in enumerate(rows) if row.mark is not None]
    return scatter(
        x=[score.value for _, _, score in marked],
        y=[y for y, _, _ in marked],
        mode="markers",
        marker={"symbol": "diamond-open", "size": 11, "line": {"width": 2}, "color": light("accent")},
        text=[f"<b>{escape(row)}</b><br>{escape(name)}: {interval(score)}" for _, row, score in marked],
        name=escape(name),
    )


@dataclass(frozen=True, kw_only=True)
class Dots(Mark):
    """A row for each value of the column `y`, in it a lane for each series.

    Rows in which the column `faint` is not empty are single seeds or draws, shown as faint dots behind the others; with
    `swarm` each row of the figure is a swarm of all its draws with their median, and the rows without are its mark.
    Rows that are `against` the value `chance` are a short dotted line in their row of the figure. `from_zero` keeps
    zero on the axis. `rows_named` fixes which rows the figure has; `allowed` is a grey band through all of them, or
    says it of the rows.
    """

    y: str = "task"
    faint: str = "seed"
    swarm: bool = False
    mark: str = ""
    chance: str = ""
    from_zero: bool = False
    allowed: tuple[float, float] | Callable[[Rows], tuple[float, float] | None] | None = None
    row_words: Callable[[Any], str] = str
    rows_named: Callable[[ReportData], Sequence[str]] | None = None

    def figure(self, rows: Rows, data: ReportData, slots: Mapping[str, int], all_rows: Rows) -> Figure | None:
        """The dots of the rows, on the axis that `show` fixes, or of all of them."""
        levels = rows.where(against=self.chance) if self.chance else Rows()
        rows = rows.where(against=None) if self.chance else rows
        whole, single = rows.where(**{self.faint: None}), rows.where(**{self.faint: PRESENT})
        if self.swarm:
            return self._swarms(whole, single, slots)
        names = [str(name) for name in rows.axis(self.series)] if self.series else [""]
        arms = []
        for name in names:
            own = whole.where(**{self.series: name}) if self.series else whole
            faint = single.where(**{self.series: name}) if self.series else single
            cells = {self._row(row): self.show.shown(row) for row in own}
            seeds: dict[str, list[Score]] = {}
            for row in faint:
                seeds.setdefault(self._row(row), []).append(self.show.shown(row))
            arms.append(DotArm(self.words(name) if name else self.title, slots.get(name, 0), cells, seeds))
        return dots(
            arms, across=self.show.axis, reference=self.show.reference, from_zero=self.from_zero,
            signed=self.show.signed, span=self.show.span,
            allowed=self.allowed(rows) if callable(self.allowed) else self.allowed,
            chance={self._row(row): self.show.shown(row).value for row in levels},
            rows=None if self.rows_named is None else self.rows_named(data),
        )  # fmt: skip

    def _swarms(self, whole: Rows, single: Rows, slots: Mapping[str, int]) -> Figure:
        marks = {self._row(row): self.show.shown(row) for row in whole}
        drawn = [
            Strip(
                self.row_words(name),
                {f"{self.faint} {getattr(row, self.faint)}": self.show.shown(row).value for row in rows},
                slots.get(self.series_of(rows[0]), 0), marks.get(self.row_words(name)),
            )
            for name, rows in single.by(self.y).items()
        ]  # fmt: skip
        return strips(
            drawn, across=self.show.axis, reference=self.show.reference, mark=self.mark, span=self.show.span
        )  # fmt: skip

    def _row(self, row: Score) -> str:
        return self.row_words(getattr(row, self.y))
