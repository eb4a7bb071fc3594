"""The compute-matched view: what a plan costs to run against what it costs in quality."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from html import escape

from layerwise.report.evidence import DELTA, Evidence
from layerwise.report.figures.figure import Figure, Trace, scatter, upright_line
from layerwise.report.figures.frame import DELTA_AXIS, framed, hover, series_style
from layerwise.report.page.palette import light, series_slots
from layerwise.report.page.wording import label
from layerwise.results.rows import PlanRecord, Score

Priced = tuple[PlanRecord, Score]
Price = Callable[[PlanRecord], int]
PRICES: dict[str, Price] = {
    "layer evaluations": lambda record: record.evaluations,
    "sequential stages": lambda record: record.stages,
}


def cost(evidence: Evidence, task: str, price: str) -> Figure:
    """Every plan as a point: its price, one of `PRICES`, and its effect.

    The stepped line is the frontier: the least loss found at that price or below. It is chosen among many plans on the
    same documents, so it flatters its members a little.
    """
    priced, priced_by = _priced(evidence, task), PRICES[price]
    slots = series_slots(evidence.strategies)
    traces = [_frontier(priced, priced_by)]
    for strategy in dict.fromkeys(record.strategy for record, _ in priced):
        rows = [(record, score) for record, score in priced if record.strategy == strategy]
        traces.append(_points(rows, priced_by, slots[strategy], evidence.data.level))
    untouched = upright_line(evidence.depth, line={"color": light("zero"), "dash": "dot", "width": 1}, layer="below")
    return framed(400, traces, x={"title": price}, y={"title": DELTA_AXIS}, shapes=[untouched])


def _priced(evidence: Evidence, task: str) -> list[Priced]:
    scored = ((record, evidence.effect(record.plan, task, DELTA)) for record in evidence.records.values())
    return [(record, score) for record, score in scored if score is not None and math.isfinite(score.value)]


def _points(rows: Sequence[Priced], price: Price, slot: int, level: float) -> Trace:
    colour, _, symbol = series_style(slot)
    strategy = rows[0][0].strategy
    return scatter(
        x=[price(record) for record, _ in rows],
        y=[score.value for _, score in rows],
        mode="markers",
        marker={"color": colour, "symbol": symbol, "size": 7, "opacity": 0.75, "line": {"width": 0}},
        text=[hover(f"{label(strategy)}, {record.affected}", record.plan, score, level) for record, score in rows],
        legendgroup=strategy,
        name=escape(label(strategy)),
    )


def _frontier(priced: Sequence[Priced], price: Price) -> Trace:
    best: list[tuple[int, float]] = []
    for record, score in sorted(priced, key=lambda row: (price(row[0]), row[1].value)):
        if not best or score.value < best[-1][1]:
            best.append((price(record), score.value))
    return scatter(
        x=[at for at, _ in best],
        y=[value for _, value in best],
        mode="lines",
        line={"color": light("ink"), "width": 1.5, "shape": "hv"},
        opacity=0.5,
        name="frontier",
    )
