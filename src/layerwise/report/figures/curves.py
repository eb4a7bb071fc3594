"""Degradation curves: the effect of a strategy against the number of layers that it touches."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from statistics import median
from typing import Any

from layerwise.report.curves import Curve, Point, curves
from layerwise.report.data import DELTA, Evidence
from layerwise.report.figures.figure import Figure, Trace, level_line, scatter
from layerwise.report.figures.frame import DELTA_AXIS, framed, series_style
from layerwise.report.notation import between, tidy
from layerwise.report.palette import faded, light, series_slots
from layerwise.report.wording import label

METRICS = {
    DELTA: DELTA_AXIS,
    "exact_match": "exact match (share of answers)",
    "token_accuracy": "token accuracy (share of tokens)",
}
SIZES = {"kendall": "pairs of layers the other way round", "repeat_blocks": "layers repeated"}
MOST_TICKS = 16
SMALL = 300  # a figure less high than this leaves its axis titles to the heading above it


def degradation(
    evidence: Evidence,
    family: str,
    task: str,
    metric: str = DELTA,
    *,
    height: int = 460,
    span: tuple[float, float] | None = None,
) -> Figure:
    """Every strategy of a family on one task, with interval bands, single draws as dots, and the blind zone.

    The blind zone is the median minimum detectable effect at each size: an effect inside it would not be told apart
    from nothing. `span` fixes the vertical axis, for figures that stand side by side; small ones have no axis titles.
    """
    drawn = curves(evidence, family, task, metric)
    share = metric != DELTA
    small = height < SMALL
    slots = series_slots(evidence.strategies)
    curve_traces = (trace for curve in drawn for trace in _curve_traces(curve, slots[curve.strategy], metric))
    baseline = evidence.baseline(task, metric) if share else None
    dotted = {"color": light("zero"), "dash": "dot", "width": 1.5}
    return framed(
        height,
        [*(() if share else _blind_zone(drawn)), *curve_traces],
        x={"title": "" if small else SIZES.get(family, "layers affected"), **_ticks(drawn, small)},
        y={"title": "" if small else METRICS.get(metric, metric), "range": span}
        | ({"tickformat": ".0%", "rangemode": "tozero"} if share else {}),
        margin={"l": 34, "r": 8, "t": 4, "b": 24} if small else {"l": 48, "r": 12, "t": 8, "b": 40},
        shapes=[] if baseline is None else [level_line(baseline, line=dotted)],
    )


def _ticks(drawn: Sequence[Curve], small: bool) -> dict[str, Any]:
    """Ticks at the sizes themselves while they fit."""
    sizes = sorted({point.affected for curve in drawn for point in curve.points})
    most = MOST_TICKS // 2 if small else MOST_TICKS
    return {"tickmode": "array", "tickvals": sizes} if len(sizes) <= most else {}


def _blind_zone(drawn: Sequence[Curve]) -> list[Trace]:
    found: dict[int, list[float]] = {}
    for curve in drawn:
        for point in curve.points:
            if point.resolution is not None:
                found.setdefault(point.affected, []).append(point.resolution)
    if not found:
        return []
    sizes = sorted(found)
    zone = [median(found[size]) for size in sizes]
    return [
        scatter(
            x=[*sizes, *reversed(sizes)],
            y=[*zone, *(-edge for edge in reversed(zone))],
            fill="toself",
            fillcolor=faded(light("muted"), 0.18),
            line={"width": 0},
            mode="lines",
            hoverinfo="skip",
            name="below the minimum detectable effect",
        )
    ]


def _curve_traces(curve: Curve, slot: int, metric: str) -> list[Trace]:
    colour, band, symbol = series_style(slot)
    common: dict[str, Any] = {"legendgroup": curve.strategy, "name": escape(label(curve.strategy))}
    line = scatter(
        x=[point.affected for point in curve.points],
        y=[point.value for point in curve.points],
        mode="lines+markers",
        line={"color": colour, "width": 2},
        marker={"color": colour, "symbol": symbol, "size": 7},
        text=[_told(curve, point, metric) for point in curve.points],
        hovertemplate="%{text}<extra></extra>",
        **common,
    )
    return [*_band(curve.points, band, common), *_draws(curve, colour, common), line]


def _band(points: Sequence[Point], colour: str, common: dict[str, Any]) -> list[Trace]:
    bounded = [point for point in points if point.low is not None and point.high is not None]
    if not bounded:
        return []
    sizes = [point.affected for point in bounded]
    return [
        scatter(
            x=[*sizes, *reversed(sizes)],
            y=[*(point.high for point in bounded), *(point.low for point in reversed(bounded))],
            fill="toself",
            fillcolor=colour,
            line={"width": 0},
            mode="lines",
            hoverinfo="skip",
            **common,
        )
    ]


def _draws(curve: Curve, colour: str, common: dict[str, Any]) -> list[Trace]:
    """The single plans behind a mean, faint: how much one order differs from another."""
    single = [
        (point.affected, score.value) for point in curve.points if len(point.scores) > 1 for score in point.scores
    ]
    if not single:
        return []
    return [
        scatter(
            x=[affected for affected, _ in single],
            y=[value for _, value in single],
            mode="markers",
            marker={"color": faded(colour, 0.4), "size": 4.5, "line": {"width": 0}},
            hoverinfo="skip",
            **common,
        )
    ]


def _told(curve: Curve, point: Point, metric: str) -> str:
    unit = " nats per token" if metric == DELTA else ""
    mean = f", mean of {len(point.scores)} plans" if len(point.scores) > 1 else ""
    lines = [
        f"<b>{escape(label(curve.strategy))}</b>, {point.affected}{mean}",
        f"{between(point.value, point.low, point.high, signed=metric == DELTA)}{unit}",
    ]
    if len(point.records) == 1:
        lines.insert(1, escape(point.records[0].plan[:60]))
    if point.resolution is not None and metric == DELTA:
        lines.append(f"detectable above {tidy(point.resolution)}")
    return "<br>".join(lines)
