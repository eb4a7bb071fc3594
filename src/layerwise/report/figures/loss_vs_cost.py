"""Loss against what it cost: a line an arm with the range of its seeds, and uniform's frontier of decayed trainings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from html import escape

from layerwise.report.figures.frame import Figure, Trace, framed, interval, scatter, series_style, whiskers
from layerwise.report.figures.lines import area
from layerwise.report.figures.palette import faded, light
from layerwise.report.text.number_format import large
from layerwise.results.rows import Score
from layerwise.results.vocabulary import TOKENS

HEIGHT = 460
FRONTIER = "uniform, decayed at each length"
LATE = 0.5  # the share of the dearest arm's cost from which on the ends are shown
AIR = 0.06

Losses = Mapping[float, Score]
"""Cost to the mean loss over seeds; the interval is the range of the seeds."""


def costed(
    arms: Mapping[str, Losses],
    frontier: Losses,
    slots: Mapping[str, int],
    *,
    across: str,
    upwards: str,
    late: bool,
) -> Figure:
    """Every arm's mean loss, its last point marked; with `late` only the second half of the dearest arm is in sight."""
    drawn = [*arms.values(), frontier]
    most = max((cost for losses in (arms.values() if late else drawn) for cost in losses), default=1.0)
    costs = (LATE * most if late else 0.0, most * (1 + AIR / 2))
    traces = [trace for arm, losses in arms.items() for trace in _arm(arm, losses, slots[arm], across)]
    return framed(
        HEIGHT,
        [*traces, *(_frontier(frontier, across) if frontier else ())],
        x={"title": across, "range": costs, "exponentformat": "SI" if across == TOKENS else "power"},
        y={"title": upwards, "range": _span_of_losses(drawn, costs) if late else None, "zeroline": False},
        margin={"l": 48, "r": 16, "t": 8, "b": 44},
    )


def _span_of_losses(drawn: Sequence[Losses], costs: tuple[float, float]) -> list[float] | None:
    """The losses in sight, ranges of seeds with them."""
    bounds = [
        bound
        for losses in drawn
        for cost, score in losses.items()
        if costs[0] <= cost <= costs[1]
        for bound in (score.value, score.low, score.high)
        if bound is not None
    ]
    if not bounds:
        return None
    air = AIR * (max(bounds) - min(bounds)) or 0.1
    return [min(bounds) - air, max(bounds) + air]


def _arm(arm: str, losses: Losses, slot: int, across: str) -> list[Trace]:
    colour, ribbon, symbol = series_style(slot)
    costs = list(losses)
    last = costs[-1]
    line = scatter(
        x=costs,
        y=[score.value for score in losses.values()],
        mode="lines+markers",
        line={"color": colour, "width": 2},
        marker={"color": colour, "symbol": symbol, "size": [9 if cost == last else 3 for cost in costs]},
        # The range of the seeds stands at the end alone: before, the band shows it.
        error_y=whiskers(
            (score if cost == last else replace(score, low=None, high=None) for cost, score in losses.items()),
            colour,
        ),
        text=[_hover(arm, cost, losses, across) for cost in costs],
        legendgroup=arm,
        name=escape(arm),
    )
    return [*area(losses, ribbon, arm), line]


def _frontier(losses: Losses, across: str) -> list[Trace]:
    line = scatter(
        x=list(losses),
        y=[score.value for score in losses.values()],
        mode="lines+markers",
        line={"color": light("ink"), "width": 1.5, "dash": "dash"},
        marker={"color": light("ink"), "symbol": "line-ew-open", "size": 9, "line": {"width": 2}},
        text=[_hover(FRONTIER, cost, losses, across) for cost in losses],
        legendgroup=FRONTIER,
        name=FRONTIER,
    )
    return [*area(losses, faded(light("muted"), 0.18), FRONTIER), line]


def _hover(name: str, cost: float, losses: Losses, across: str) -> str:
    score = losses[cost]
    seeds = "" if score.low is None else ", mean and range of the seeds"
    return f"<b>{escape(name)}</b>, {large(cost)} {across}<br>{interval(score)}{seeds}"
