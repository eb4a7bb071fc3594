"""What was predicted against what was measured: a dot a phase, the line where both are equal, and the bar allowed."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape

from layerwise.report.figures.figure import Figure, Trace, scatter
from layerwise.report.figures.frame import framed, limits, series_style
from layerwise.report.growth import Phase
from layerwise.report.notation import between, fixed
from layerwise.report.palette import faded, light
from layerwise.results.rows import Score

HEIGHT = 380
Forecasts = Mapping[str, Mapping[Phase, tuple[Score, Score]]]
"""Arm to phase to (predicted, measured)."""


def forecast(found: Forecasts, slots: Mapping[str, int], *, bar: float) -> Figure:
    """Both as shares of a uniform step; the grey band is `bar`, a share of the prediction, to either side."""
    pairs = [pair for of in found.values() for pair in of.values()]
    span = limits(bound for _, measured in pairs for bound in (measured.value, measured.low, measured.high))
    reach = limits(predicted.value for predicted, _ in pairs)
    top = max((predicted.value for predicted, _ in pairs), default=1.0) * 1.1
    return framed(
        HEIGHT,
        [_band(top, bar), _equal(top), *(_arm(arm, of, slots[arm]) for arm, of in found.items() if of)],
        x={"title": "predicted, FLOPs of a step as a share of uniform's", "range": reach},
        y={"title": "measured, time of a step", "range": span},
        margin={"l": 48, "r": 16, "t": 8, "b": 44},
    )


def _band(top: float, bar: float) -> Trace:
    return scatter(
        x=[0.0, top, top, 0.0],
        y=[0.0, (1 + bar) * top, (1 - bar) * top, 0.0],
        fill="toself",
        fillcolor=faded(light("muted"), 0.16),
        line={"width": 0},
        mode="lines",
        hoverinfo="skip",
        name=f"within {100 * bar:g} %",
    )


def _equal(top: float) -> Trace:
    return scatter(
        x=[0.0, top],
        y=[0.0, top],
        mode="lines",
        line={"color": light("zero"), "dash": "dot", "width": 1.5},
        hoverinfo="skip",
        name="as predicted",
    )


def _arm(arm: str, phases: Mapping[Phase, tuple[Score, Score]], slot: int) -> Trace:
    colour, _, symbol = series_style(slot)
    measured = [score for _, score in phases.values()]
    return scatter(
        x=[predicted.value for predicted, _ in phases.values()],
        y=[score.value for score in measured],
        error_y={
            "type": "data",
            "symmetric": False,
            "array": [0.0 if s.high is None else max(0.0, s.high - s.value) for s in measured],
            "arrayminus": [0.0 if s.low is None else max(0.0, s.value - s.low) for s in measured],
            "color": colour,
            "thickness": 1.5,
            "width": 0,
        },
        mode="markers",
        marker={"color": colour, "symbol": symbol, "size": 9},
        text=[_told(arm, phase, *pair) for phase, pair in phases.items()],
        hovertemplate="%{text}<extra></extra>",
        legendgroup=arm,
        name=escape(arm),
    )


def _told(arm: str, phase: Phase, predicted: Score, measured: Score) -> str:
    shown = between(measured.value, measured.low, measured.high)
    return f"<b>{escape(arm)}</b>, {escape(phase.name)}<br>predicted {fixed(predicted.value, 3)}, measured {shown}"
