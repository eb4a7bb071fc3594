"""Lines with intervals as ribbons, and their null baselines as gray bands."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from html import escape
from typing import Any

from layerwise.page.data import ReportData
from layerwise.page.figures import frame
from layerwise.page.figures.frame import Figure, Trace
from layerwise.page.figures.palette import fade, light_color
from layerwise.page.formatting import DIFFERENCE, format_number, format_p_value, format_perplexity, is_resolved
from layerwise.page.marks.mark import Mark
from layerwise.results.rows import Score
from layerwise.results.selection import Rows

Points = Mapping[Any, Score]
Describe = Callable[[str, float, Score], str]

MOST_TICKS = 24
MOST_SIZES = 6
SMALL = 300  # figures below this height have no axis titles
BAND_OPACITY = (0.22, 0.13, 0.08)
BAND_DASH = ("dash", "dot", "dashdot")
QUARTERS = {
    "range": (-3.0, 103.0),
    "tickmode": "array",
    "tickvals": [0, 25, 50, 75, 100],
    "ticktext": ["0 %", "25 %", "50 %", "75 %", "100 %"],
}
"""Axis from 0 to 100 %, with a margin for markers."""


@dataclass(frozen=True, kw_only=True)
class Lines(Mark):
    """A line for each series along the numeric column `x`, with its intervals as a ribbon.

    `across` is the title of the axis, and `at` names a position in hover text (`{}` is its value). The axis is
    logarithmic if `sizes`, and from 0 to 100 % if `percent`; `reach` is its range. If `nulls` is given, scores with a
    value in the column `against` are baselines, drawn as gray bands with the names that `nulls` returns. Scores for
    which `hollow` returns True have open markers. Scores with a value in the column `faint` are single draws. `named`
    adds a legend. If `show` is `DIFFERENCE`, hover text also gives the change of the perplexity.
    """

    x: str = "layer"
    across: str = "layer"
    at: str = "layer {}"
    nulls: Callable[[str], str] | None = None
    hollow: Callable[[Score], bool] = lambda row: False
    sizes: bool = False
    percent: bool = False
    reach: tuple[float, float] | None = None
    named: bool = False
    faint: str = ""

    def figure(self, rows: Rows, data: ReportData, slots: Mapping[str, int], all_rows: Rows) -> Figure | None:
        measured = rows if self.nulls is None else rows.where(against=None)
        groups = measured.by(self.series) if self.series else {"": measured}
        lines = {
            name: self._points(group.where(**{self.faint: None}) if self.faint else group)
            for name, group in groups.items()
        }
        if not any(lines.values()):
            return None
        format_null = self.nulls
        bands = (
            []
            if format_null is None
            else [(format_null(name), self._points(of)) for name, of in rows.by("against").items()]
        )
        describe = hover_text(self.at, self.show.axis, data.level, nats=self.show == DIFFERENCE)
        traces = [trace for at, (name, points) in enumerate(bands) for trace in _null(name, points, at)]
        for name, points in lines.items():
            traces += self._line(name, groups[name], points, slots.get(str(name), 0), describe)
        shared = self.each or set(self.apart) & set(self.choices.values())
        span = self.show.span or (frame.common_span(map(self.show.scale_score, all_rows)) if shared else None)
        height = self.height or 340
        small = height < SMALL
        right = 24 if self.percent else 8 if small else 12  # space for the last tick
        above = 34 if self.named or (bands and not small) else 8
        xs = {x for points in (*lines.values(), *(points for _, points in bands)) for x in points}
        return frame.make_figure(
            height,
            traces,
            showlegend=self.named or bool(bands and not small),
            legend=frame.LEGEND,
            x={"title": "" if small else self.across, "showgrid": False, "range": self.reach, **self._ticks(xs, small)},
            y={"title": "" if small else self.show.axis, "range": span},
            shapes=[]
            if self.show.reference is None
            else [frame.horizontal_line(self.show.reference, **frame.REFERENCE)],
            margin={"l": 34, "r": right, "t": 6, "b": 24} if small else {"l": 48, "r": right, "t": above, "b": 40},
        )

    def _points(self, rows: Rows) -> Points:
        return {at: self.show.scale_score(row) for row in rows if (at := getattr(row, self.x)) is not None}

    def _ticks(self, xs: set[float], small: bool) -> dict[str, Any]:
        if self.sizes:
            return size_axis(xs)
        crowded = len(xs) > (MOST_TICKS // 2 if small else MOST_TICKS)
        return QUARTERS if self.percent else {} if crowded else {"dtick": 1}

    def _line(self, name: Any, rows: Rows, points: Points, slot: int, describe: Describe) -> list[Trace]:
        called, (color, ribbon, symbol) = self.words(name) if name else self.title, frame.series_style(slot)
        xs, hollow = sorted(points), {getattr(row, self.x) for row in rows if self.hollow(row)}
        drawn = frame.scatter(
            x=xs,
            y=[points[x].value for x in xs],
            mode="lines+markers",
            line={"color": color, "width": 2},
            marker={
                "color": color,
                "size": 6.5,
                "symbol": [f"{symbol}-open" if x in hollow else symbol for x in xs] if hollow else symbol,
            },
            text=[describe(called, x, points[x]) for x in xs],
            legendgroup=called,
            name=escape(called),
            showlegend=self.named,
        )
        faint = [row for row in rows if self.faint and getattr(row, self.faint) is not None]
        draws = (
            [
                frame.scatter(
                    x=[getattr(row, self.x) for row in faint],
                    y=[self.show.scale_score(row).value for row in faint],
                    mode="markers",
                    marker={"color": fade(color, 0.4), "size": 4.5, "line": {"width": 0}},
                    legendgroup=called,
                    name=escape(called),
                    showlegend=False,
                )
            ]
            if faint
            else []
        )
        return [*area(points, ribbon, called), *draws, drawn]


def _null(name: str, points: Points, index: int) -> list[Trace]:
    opacity, dash = BAND_OPACITY[index % len(BAND_OPACITY)], BAND_DASH[index % len(BAND_DASH)]
    xs = sorted(points)
    middle = frame.scatter(
        x=xs,
        y=[points[x].value for x in xs],
        mode="lines" if len(xs) > 1 else "markers",
        line={"color": light_color("zero"), "width": 1.5, "dash": dash},
        marker={"color": light_color("zero"), "symbol": "line-ew-open", "size": 12},
        text=[f"{escape(name)}<br>{frame.interval(points[x])}" for x in xs],
        legendgroup=name,
        name=escape(name),
    )
    return [*area(points, fade(light_color("muted"), opacity), name), middle]


def area(points: Points, color: str, group: str) -> list[Trace]:
    """Return the intervals of a line as a filled area, or nothing if fewer than two positions have an interval."""
    bounded = [
        (x, row.low, row.high) for x, row in sorted(points.items()) if row.low is not None and row.high is not None
    ]
    if len(bounded) < 2:
        return []
    xs, low, high = zip(*bounded, strict=True)
    return [frame.fill_between(xs, low, high, color, legendgroup=group, name=escape(group), showlegend=False)]


def size_axis(sizes: Iterable[float]) -> dict[str, Any]:
    ticks = sorted(size for size in sizes if size > 0.0)
    shown_ticks = ticks[:: 1 + len(ticks) // (MOST_SIZES + 1)]
    return {
        "type": "log",
        "tickmode": "array",
        "tickvals": shown_ticks,
        "ticktext": [f"{tick:g}" for tick in shown_ticks],
    }


def hover_text(what: str, unit: str, level: float, *, nats: bool = False) -> Describe:
    """Return a function that writes the hover text of a point: its position, score, interval and p-value.

    `what` names the position, with `{}` or `{:.0f}` for its value. If `nats`, the score is a loss difference: it is
    written with its sign and as a change of the perplexity, too.
    """

    def describe(name: str, x: float, score: Score) -> str:
        interval = frame.interval(score, signed=nats)
        parts = [f"<b>{escape(name)}</b>, {what.replace('{}', '{:g}').format(x)}", f"{interval} {unit}".rstrip()]
        if nats:
            parts.append(f"perplexity {format_perplexity(score.value)}")
        if score.p_adjusted is not None:
            verdict = "differs from zero" if is_resolved(score, level) else "not distinguishable from zero"
            parts.append(f"adjusted p {format_p_value(score.p_adjusted)}: {verdict}")
        if score.mde is not None:
            parts.append(f"detectable above {format_number(score.mde)}")
        return "<br>".join(parts)

    return describe
