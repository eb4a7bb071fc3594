"""The compute-matched view: what a plan costs to run against what it costs in quality."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from html import escape

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from layerwise.report.data import DELTA, Evidence
from layerwise.report.figures.frame import DELTA_AXIS, axis, framed, hover, series_style
from layerwise.report.palette import light, series_slots
from layerwise.results.rows import PlanRecord, Score

Priced = tuple[PlanRecord, Score]
AXES: tuple[tuple[str, Callable[[PlanRecord], int]], ...] = (
    ("layer evaluations", lambda record: record.evaluations),
    ("sequential stages", lambda record: record.stages),
)


def cost(evidence: Evidence, task: str) -> go.Figure:
    """Every plan as a point, once against layer evaluations (work) and once against sequential stages (waiting).

    The stepped line is the frontier: the least loss found at that cost or below. It is chosen among many plans on the
    same documents, so it flatters its members a little.
    """
    figure = make_subplots(rows=1, cols=2, shared_yaxes=True, horizontal_spacing=0.04)
    figure.update_layout(framed(430).layout)
    priced = _priced(evidence, task)
    slots = series_slots(evidence.strategies)
    for column, (title, price) in enumerate(AXES, start=1):
        figure.add_trace(_frontier(priced, price), row=1, col=column)
        for strategy in dict.fromkeys(record.strategy for record, _ in priced):
            rows = [(record, score) for record, score in priced if record.strategy == strategy]
            trace = _points(rows, price, slots[strategy], evidence.data.level)
            figure.add_trace(trace, row=1, col=column)
        figure.update_xaxes(**axis(title_text=title), row=1, col=column)
        figure.add_vline(x=evidence.depth, line={"color": light("zero"), "dash": "dot", "width": 1}, col=column)
    figure.update_yaxes(**axis(zeroline=True))
    figure.update_yaxes(title_text=DELTA_AXIS, col=1)
    return figure


def _priced(evidence: Evidence, task: str) -> list[Priced]:
    scored = ((record, evidence.effect(record.plan, task, DELTA)) for record in evidence.records.values())
    return [(record, score) for record, score in scored if score is not None and math.isfinite(score.value)]


def _points(rows: Sequence[Priced], price: Callable[[PlanRecord], int], slot: int, level: float) -> go.Scatter:
    colour, _, symbol = series_style(slot)
    return go.Scatter(
        x=[price(record) for record, _ in rows],
        y=[score.value for _, score in rows],
        mode="markers",
        marker={"color": colour, "symbol": symbol, "size": 7, "opacity": 0.75, "line": {"width": 0}},
        text=[
            hover(f"{record.strategy}, {record.affected} layers", record.plan, score, level) for record, score in rows
        ],
        hovertemplate="%{text}<extra></extra>",
        legendgroup=rows[0][0].strategy,
        name=escape(rows[0][0].strategy),
    )


def _frontier(priced: Sequence[Priced], price: Callable[[PlanRecord], int]) -> go.Scatter:
    best: list[tuple[int, float]] = []
    for record, score in sorted(priced, key=lambda row: (price(row[0]), row[1].value)):
        if not best or score.value < best[-1][1]:
            best.append((price(record), score.value))
    return go.Scatter(
        x=[at for at, _ in best],
        y=[value for _, value in best],
        mode="lines",
        line={"color": light("ink"), "width": 1.5, "shape": "hv"},
        opacity=0.55,
        hoverinfo="skip",
        name="frontier",
    )
