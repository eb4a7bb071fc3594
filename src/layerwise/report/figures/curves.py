"""Degradation curves: the effect of a strategy against the number of layers that it touches."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from statistics import median
from typing import Any

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from layerwise.report.curves import Curve, Point, curves
from layerwise.report.data import DELTA, Evidence
from layerwise.report.figures.frame import DELTA_AXIS, axis, framed, series_style
from layerwise.report.notation import between, tidy
from layerwise.report.palette import faded, light, series_slots

METRICS = {
    DELTA: DELTA_AXIS,
    "exact_match": "exact match (share of answers)",
    "token_accuracy": "token accuracy (share of tokens)",
}


def degradation(evidence: Evidence, family: str, task: str, metric: str = DELTA) -> go.Figure:
    """Every strategy of a family on one task, with interval bands, single draws as dots, and the blind zone.

    The blind zone is the median minimum detectable effect at each size: an effect inside it would not be told apart
    from nothing.
    """
    drawn = curves(evidence, family, task, metric)
    figure = framed(460, hovermode="closest")
    figure.update_xaxes(title_text="layers affected", dtick=_step(drawn))
    figure.update_yaxes(title_text=METRICS.get(metric, metric))
    if metric == DELTA:
        figure.add_traces(_blind_zone(drawn))
    elif (baseline := evidence.baseline(task, metric)) is not None:
        figure.add_hline(y=baseline, line={"color": light("zero"), "dash": "dot", "width": 1.5})
    if metric != DELTA:
        figure.update_yaxes(tickformat=".0%", rangemode="tozero")
    slots = series_slots(evidence.strategies)
    for curve in drawn:
        figure.add_traces(_curve_traces(curve, slots[curve.strategy], metric))
    return figure


def multiples(evidence: Evidence, family: str) -> go.Figure:
    """The same curves once per task, side by side on one vertical scale."""
    tasks = evidence.named_tasks
    columns = min(3, len(tasks))
    rows = math.ceil(len(tasks) / columns)
    grid = make_subplots(
        rows=rows,
        cols=columns,
        shared_yaxes="all",
        shared_xaxes="all",
        subplot_titles=[escape(task) for task in tasks],
        horizontal_spacing=0.03,
        vertical_spacing=0.16 / rows,
    )
    figure = framed(60 + 210 * rows)
    grid.update_layout(figure.layout, height=60 + 210 * rows)
    slots = series_slots(evidence.strategies)
    for index, task in enumerate(tasks):
        row, column = index // columns + 1, index % columns + 1
        drawn = curves(evidence, family, task)
        for curve in drawn:
            for trace in _curve_traces(curve, slots[curve.strategy], DELTA, dots=False):
                grid.add_trace(trace, row=row, col=column)
    grid.update_xaxes(**axis())
    grid.update_yaxes(**axis(zeroline=True))
    grid.update_annotations(font={"size": 13, "color": light("ink")})
    for column in range(1, columns + 1):
        grid.update_xaxes(title_text="layers affected", row=rows, col=column)
    grid.update_yaxes(title_text=DELTA_AXIS, col=1)
    return grid


def _step(drawn: Sequence[Curve]) -> int | None:
    """Ticks at the sizes themselves while they fit."""
    sizes = sorted({point.affected for curve in drawn for point in curve.points})
    gaps = {right - left for left, right in zip(sizes, sizes[1:], strict=False)}
    return gaps.pop() if len(gaps) == 1 and len(sizes) <= 16 else None


def _blind_zone(drawn: Sequence[Curve]) -> list[go.Scatter]:
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
        go.Scatter(
            x=[*sizes, *reversed(sizes)],
            y=[*zone, *(-edge for edge in reversed(zone))],
            fill="toself",
            fillcolor=faded(light("muted"), 0.16),
            line={"width": 0},
            mode="lines",
            hoverinfo="skip",
            name="below the minimum detectable effect",
        )
    ]


def _curve_traces(curve: Curve, slot: int, metric: str, *, dots: bool = True) -> list[go.Scatter]:
    colour, band, symbol = series_style(slot)
    common: dict[str, Any] = {"legendgroup": curve.strategy, "name": escape(curve.strategy)}
    traces = [_band(curve.points, band, common)] if _bounded(curve.points) else []
    if dots:
        traces.extend(_draws(curve, colour, common))
    traces.append(
        go.Scatter(
            x=[point.affected for point in curve.points],
            y=[point.value for point in curve.points],
            mode="lines+markers",
            line={"color": colour, "width": 2},
            marker={"color": colour, "symbol": symbol, "size": 7 if dots else 5},
            text=[_told(curve, point, metric) for point in curve.points],
            hovertemplate="%{text}<extra></extra>",
            **common,
        )
    )
    return traces


def _bounded(points: Sequence[Point]) -> list[Point]:
    return [point for point in points if point.low is not None and point.high is not None]


def _band(points: Sequence[Point], colour: str, common: dict[str, Any]) -> go.Scatter:
    bounded = _bounded(points)
    sizes = [point.affected for point in bounded]
    return go.Scatter(
        x=[*sizes, *reversed(sizes)],
        y=[*(point.high for point in bounded), *(point.low for point in reversed(bounded))],
        fill="toself",
        fillcolor=colour,
        line={"width": 0},
        mode="lines",
        hoverinfo="skip",
        **common,
    )


def _draws(curve: Curve, colour: str, common: dict[str, Any]) -> list[go.Scatter]:
    """The single draws behind a mean, faint: how much one order differs from another."""
    single = [
        (point.affected, score.value) for point in curve.points if len(point.scores) > 1 for score in point.scores
    ]
    if not single:
        return []
    return [
        go.Scatter(
            x=[affected for affected, _ in single],
            y=[value for _, value in single],
            mode="markers",
            marker={"color": faded(colour, 0.35), "size": 4},
            hoverinfo="skip",
            **common,
        )
    ]


def _told(curve: Curve, point: Point, metric: str) -> str:
    unit = " nats per token" if metric == DELTA else ""
    draws = f" · mean of {len(point.scores)} draws" if len(point.scores) > 1 else ""
    plan = point.records[0].plan
    lines = [
        f"<b>{escape(curve.strategy)}</b>, {point.affected} layers{draws}",
        f"{between(point.value, point.low, point.high, signed=metric == DELTA)}{unit}",
    ]
    if len(point.records) == 1:
        lines.insert(1, f"<span style='font-family:monospace'>{escape(plan[:70])}</span>")
    if point.resolution is not None and metric == DELTA:
        lines.append(f"detectable above {tidy(point.resolution)}")
    return "<br>".join(lines)
