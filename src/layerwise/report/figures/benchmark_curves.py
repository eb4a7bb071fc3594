"""Benchmarks on the scale from chance to the model as trained, against the number of layers that a strategy touches."""

from __future__ import annotations

from collections.abc import Sequence

from layerwise.report.evidence import Evidence
from layerwise.report.figures.curves import SMALL, curve_traces, size_ticks
from layerwise.report.figures.figure import Figure, level_line
from layerwise.report.figures.frame import framed
from layerwise.report.page.palette import light, series_slots
from layerwise.report.sweep.curves import Curve

LOWEST, HIGHEST = -0.25, 1.25
"""Between these the axis shows at least what is measured, but no interval as wide as a scale that is hardly known."""


def benchmark_degradation(evidence: Evidence, drawn: Sequence[Curve], title: str, *, height: int = 460) -> Figure:
    """A line for each strategy with its interval; 0, chance, is dotted, and 1, the model as trained, dashed."""
    small = height < SMALL
    slots = series_slots(evidence.strategies)
    values = [point.value for curve in drawn for point in curve.points]
    span = min(LOWEST, *values), max(HIGHEST, *values)
    chance = level_line(0.0, line={"color": light("ink"), "dash": "dot", "width": 1.5})
    trained = level_line(1.0, line={"color": light("zero"), "dash": "dash", "width": 1.5})
    return framed(
        height,
        [trace for curve in drawn for trace in curve_traces(curve, slots[curve.strategy], title)],
        x={"title": "" if small else "layers affected", **size_ticks(drawn, small)},
        y={"title": "" if small else f"{title}: chance = 0, as trained = 1", "range": span},
        margin={"l": 34, "r": 8, "t": 4, "b": 24} if small else {"l": 48, "r": 12, "t": 8, "b": 40},
        shapes=[chance, trained],
    )
