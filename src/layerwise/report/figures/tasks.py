"""Pictures at one size of window: strategies in order of harm, and order against absence task by task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from layerwise.report.evidence import Evidence
from layerwise.report.figures.figure import Figure, Trace, scatter, upright_band
from layerwise.report.figures.frame import DELTA_AXIS, LEGEND, framed, interval, series_style, whiskers
from layerwise.report.page.palette import faded, light, series_slots
from layerwise.report.page.wording import label
from layerwise.report.sweep.curves import Point

ROW = 34
_NAMES = {
    "autorange": "reversed",
    "showgrid": False,
    "zeroline": False,
    "tickfont": {"color": light("ink"), "size": 13},
}


def ranking(evidence: Evidence, ranked: Sequence[tuple[str, Point]]) -> Figure:
    """Strategies from least to most harmful, a dot with its interval each, and the blind zone about zero."""
    edge = min((point.mde for _, point in ranked if point.mde is not None), default=None)
    slots = series_slots(evidence.strategies)
    return framed(
        84 + ROW * len(ranked),
        [_whisker(label(name), point, name, slots[name]) for name, point in ranked],
        x={"title": DELTA_AXIS, "zeroline": True},
        y=_NAMES,
        shapes=[] if edge is None else [upright_band(-edge, edge, faded(light("muted"), 0.16))],
    )


def order_or_absence(evidence: Evidence, by_task: Mapping[str, Mapping[str, Point]]) -> Figure:
    """For each task, what the same window costs under each strategy: dots on a line, with intervals.

    Where the order strategies stand right of skip, the wrong order does more harm than no layers at all.
    """
    strategies = list(dict.fromkeys(strategy for points in by_task.values() for strategy in points))
    slots = series_slots(evidence.strategies)
    return framed(
        110 + 52 * len(by_task),
        [trace for strategy in strategies for trace in _over_tasks(by_task, strategy, slots[strategy])],
        x={"title": DELTA_AXIS, "zeroline": True},
        y=_NAMES,
        margin={"l": 8, "r": 16, "t": 36, "b": 40},
        showlegend=True,
        scattermode="group",
        scattergap=0.45,
        legend={**LEGEND, "traceorder": "normal"},
    )


def _over_tasks(by_task: Mapping[str, Mapping[str, Point]], strategy: str, slot: int) -> list[Trace]:
    """A trace for each task where the strategy was measured; the first of them stands for all in the legend."""
    measured = [(task, points[strategy]) for task, points in by_task.items() if strategy in points]
    shared = {"legendgroup": strategy, "offsetgroup": strategy, "orientation": "h"}
    return [
        _whisker(task, point, strategy, slot, showlegend=index == 0, **shared)
        for index, (task, point) in enumerate(measured)
    ]


def _whisker(row: str, point: Point, strategy: str, slot: int, **more: Any) -> Trace:
    colour, _, symbol = series_style(slot)
    effect = f"{interval(point, signed=True)} nats per token"
    return scatter(
        x=[point.value],
        y=[escape(row)],
        mode="markers",
        marker={"color": colour, "symbol": symbol, "size": 10},
        error_x=whiskers([point], colour),
        text=[f"<b>{escape(label(strategy))}</b> · {escape(row)}<br>{effect}"],
        name=escape(label(strategy)),
        **more,
    )
