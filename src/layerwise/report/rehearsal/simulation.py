"""The page of a simulation: throughput and latency against the number of nodes, with what each station could carry."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from layerwise.report.figures.axis import Line
from layerwise.report.figures.figure import Figure
from layerwise.report.figures.lines import hover_text, lined
from layerwise.report.page.chapter import Heading, card, lead
from layerwise.report.page.figure_slot import Picture
from layerwise.report.page.markup import element
from layerwise.report.page.render import page, write
from layerwise.results.rows import Score

HEADING = Heading("simulation", "A swarm past this machine", "Simulation")
CURVES: Mapping[str, Mapping[str, tuple[str, float]]] = {
    "tokens a second": {
        "measured": ("throughput", 1.0), "router": ("router limit", 1.0), "network": ("network limit", 1.0),
        "nodes": ("nodes limit", 1.0),
    },
    "milliseconds a token": {"half": ("p50", 1000.0), "99 %": ("p99", 1000.0)},
    "share of the time busy (%)": {
        "router": ("router busy", 100.0), "network": ("network busy", 100.0), "nodes": ("nodes busy", 100.0),
    },
}  # fmt: skip


def simulation_page(path: Path, sizes: Sequence[Mapping[str, float]]) -> None:
    """Write the page of a simulation; each of `sizes` holds the numbers of one number of nodes."""
    pictures = [
        Picture(f"simulation-{number}", axis, {(): _figure(axis, curves, sizes)})
        for number, (axis, curves) in enumerate(CURVES.items())
    ]
    body = (
        lead("Each station could carry so many tokens a second; the lowest line bounds the throughput."),
        *(card(picture.alternative, picture.html(), wide=True) for picture in pictures),
    )
    title = element("header", element("h1", "A swarm past this machine"))
    write(path, page("layerwise swarm simulate", title, [HEADING.chapter(body, pictures)]))


def _figure(axis: str, curves: Mapping[str, tuple[str, float]], sizes: Sequence[Mapping[str, float]]) -> Figure:
    lines = [
        Line(name, {int(size["nodes"]): Score("simulation", name, "", column, scale * size[column]) for size in sizes},
             slot)
        for slot, (name, (column, scale)) in enumerate(curves.items())
    ]  # fmt: skip
    return lined(
        lines, across="nodes", upwards=axis, describe=hover_text("{} nodes", axis, 0.05), height=380, sizes=True,
        legend=True,
    )  # fmt: skip
