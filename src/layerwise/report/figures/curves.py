"""Degradation curves: the effect of a strategy against the number of layers that it touches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from statistics import median
from typing import Any

from layerwise.report.evidence import DELTA, Evidence
from layerwise.report.figures.figure import Figure, Trace, level_line, scatter
from layerwise.report.figures.frame import DELTA_AXIS, filled, framed, interval, series_style
from layerwise.report.page.number_format import tidy
from layerwise.report.page.palette import faded, light, series_slots
from layerwise.report.page.wording import label
from layerwise.report.sweep.curves import Curve, Point, curves

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

    The blind zone is the median minimum detectable effect at each size: an effect inside it would not be distinguished
    from nothing. `span` fixes the vertical axis, for figures that stand side by side; small ones have no axis titles.
    """
    drawn = curves(evidence, family, task, metric)
    share = metric != DELTA
    small = height < SMALL
    slots = series_slots(evidence.strategies)
    traces = (trace for curve in drawn for trace in curve_traces(curve, slots[curve.strategy], metric))
    baseline = evidence.baseline(task, metric) if share else None
    dotted = {"color": light("zero"), "dash": "dot", "width": 1.5}
    return framed(
        height,
        [*(() if share else _blind_zone(drawn)), *traces],
        x={"title": "" if small else SIZES.get(family, "layers affected"), **size_ticks(drawn, small)},
        y={"title": "" if small else METRICS.get(metric, metric), "range": span}
        | ({"tickformat": ".0%", "rangemode": "tozero"} if share else {}),
        margin={"l": 34, "r": 8, "t": 4, "b": 24} if small else {"l": 48, "r": 12, "t": 8, "b": 40},
        shapes=[] if baseline is None else [level_line(baseline, line=dotted)],
    )


def score_curves(
    drawn: Sequence[Curve],
    slots: Mapping[str, int],
    title: str,
    *,
    levels: tuple[float | None, float | None],
    height: int = 460,
    span: tuple[float, float] | None = None,
) -> Figure:
    """Curves of a score of which more is better, called `title` on its axis.

    `levels` are what the model as trained scores, a dotted line, and what chance does, a dashed one.
    """
    small = height < SMALL
    dashes = ({"dash": "dot", "width": 1.5}, {"dash": "dash", "width": 1.0})
    return framed(
        height,
        [trace for curve in drawn for trace in curve_traces(curve, slots[curve.strategy], title)],
        x={"title": "" if small else "layers affected", **size_ticks(drawn, small)},
        y={"title": "" if small else title, "range": span},
        margin={"l": 34, "r": 8, "t": 4, "b": 24} if small else {"l": 48, "r": 12, "t": 8, "b": 40},
        shapes=[
            level_line(level, line={"color": light("zero"), **dash})
            for level, dash in zip(levels, dashes, strict=True)
            if level is not None
        ],
    )


def size_ticks(drawn: Sequence[Curve], small: bool) -> dict[str, Any]:
    """Ticks at the sizes themselves while they fit."""
    sizes = sorted({point.affected for curve in drawn for point in curve.points})
    most = MOST_TICKS // 2 if small else MOST_TICKS
    return {"tickmode": "array", "tickvals": sizes} if len(sizes) <= most else {}


def _blind_zone(drawn: Sequence[Curve]) -> list[Trace]:
    mdes: dict[int, list[float]] = {}
    for curve in drawn:
        for point in curve.points:
            if point.mde is not None:
                mdes.setdefault(point.affected, []).append(point.mde)
    if not mdes:
        return []
    sizes = sorted(mdes)
    zone = [median(mdes[size]) for size in sizes]
    grey = faded(light("muted"), 0.18)
    return [filled(sizes, [-edge for edge in zone], zone, grey, name="below the minimum detectable effect")]


def curve_traces(curve: Curve, slot: int, metric: str) -> list[Trace]:
    """The interval as a band, the single plans behind a mean as faint dots, and the curve itself."""
    colour, band, symbol = series_style(slot)
    common: dict[str, Any] = {"legendgroup": curve.strategy, "name": escape(label(curve.strategy))}
    bounded = [(p.affected, p.low, p.high) for p in curve.points if p.low is not None and p.high is not None]
    draws = [(p.affected, score.value) for p in curve.points if len(p.scores) > 1 for score in p.scores]
    traces = []
    if bounded:
        sizes, low, high = zip(*bounded, strict=True)
        traces.append(filled(sizes, low, high, band, **common))
    if draws:
        dots = {"color": faded(colour, 0.4), "size": 4.5, "line": {"width": 0}}
        xs, values = zip(*draws, strict=True)
        traces.append(scatter(x=xs, y=values, mode="markers", marker=dots, **common))
    line = scatter(
        x=[point.affected for point in curve.points],
        y=[point.value for point in curve.points],
        mode="lines+markers",
        line={"color": colour, "width": 2},
        marker={"color": colour, "symbol": symbol, "size": 7},
        text=[_hover(curve, point, metric) for point in curve.points],
        **common,
    )
    return [*traces, line]


def _hover(curve: Curve, point: Point, metric: str) -> str:
    unit = " nats per token" if metric == DELTA else ""
    mean = f", mean of {len(point.scores)} plans" if len(point.scores) > 1 else ""
    lines = [
        f"<b>{escape(label(curve.strategy))}</b>, {point.affected}{mean}",
        f"{interval(point, signed=metric == DELTA)}{unit}",
    ]
    if len(point.records) == 1:
        lines.insert(1, escape(point.records[0].plan[:60]))
    if point.mde is not None and metric == DELTA:
        lines.append(f"detectable above {tidy(point.mde)}")
    return "<br>".join(lines)
