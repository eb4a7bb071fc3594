"""The zones of the depth of several models over relative depth."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from layerwise.report.derived.zones import PlanZones
from layerwise.report.figures.figure import Figure, bar
from layerwise.report.figures.frame import LEGEND, framed, row_axis
from layerwise.report.page.palette import SERIES, light

ROW = 44
PARTS = {"beginning": SERIES[2][0], "middle": SERIES[0][0], "ending": SERIES[1][0]}


def zones_side_by_side(named: Sequence[tuple[str, PlanZones]]) -> Figure:
    """The zones of every model as trained, a row each, over relative depth: 0 % is before the first layer."""
    traces = []
    for part, colour in PARTS.items():
        drawn = [
            (row, name, zone, 100 / zones.states)
            for row, (name, zones) in enumerate(named)
            for zone in zones.ranges
            if zones.part(zone) == part
        ]
        traces.append(
            bar(
                x=[(last - first + 1) * layer for _, _, (first, last), layer in drawn],
                base=[(first - 1) * layer for _, _, (first, _), layer in drawn],
                y=[row for row, *_ in drawn],
                orientation="h",
                name=part,
                marker={"color": colour, "line": {"color": light("card"), "width": 2}},
                text=[
                    f"<b>{escape(name)}</b>, {part}<br>layers {first - 1} to {last - 1}"
                    for _, name, (first, last), _ in drawn
                ],
            )
        )
    return framed(
        76 + ROW * len(named),
        traces,
        x={"title": "relative depth (%)", "range": [0, 100], "showgrid": False},
        y={**row_axis([name for name, _ in named]), "showgrid": False},
        margin={"l": 48, "r": 12, "t": 34, "b": 40},
        barmode="overlay",
        bargap=0.4,
        showlegend=True,
        legend=LEGEND,
    )
