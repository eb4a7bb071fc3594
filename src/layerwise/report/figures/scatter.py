"""One score of each layer against another: do two measures agree on the layers, and by how much do they miss?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from layerwise.report.figures.figure import Figure, Trace, scatter
from layerwise.report.figures.frame import framed, limits
from layerwise.report.notation import between
from layerwise.report.palette import depth_colour, faded, light
from layerwise.results.rows import Score


def scattered(
    across: Mapping[int, Score],
    upwards: Mapping[int, Score],
    *,
    titles: tuple[str, str],
    depth: int,
    hollow: frozenset[int] = frozenset(),
    diagonal: bool = False,
    height: int = 380,
) -> Figure:
    """A numbered dot a layer, coloured by depth, with both intervals.

    `diagonal` draws y = x, for two estimates of one quantity; `hollow` holds the layers drawn as open dots.
    """
    layers = [layer for layer in across if layer in upwards]
    equal = [_diagonal([across[layer] for layer in layers])] if diagonal and layers else []
    return framed(
        height,
        [*equal, _dots(across, upwards, layers, depth, hollow, titles)],
        x={"title": titles[0], "zeroline": True},
        y={"title": titles[1]},
        margin={"l": 48, "r": 16, "t": 14, "b": 40},
    )


def _dots(
    across: Mapping[int, Score],
    upwards: Mapping[int, Score],
    layers: list[int],
    depth: int,
    hollow: frozenset[int],
    titles: tuple[str, str],
) -> Trace:
    return scatter(
        x=[across[layer].value for layer in layers],
        y=[upwards[layer].value for layer in layers],
        error_x=_whiskers([across[layer] for layer in layers]),
        error_y=_whiskers([upwards[layer] for layer in layers]),
        mode="markers+text",
        marker={
            "color": [depth_colour(layer, depth) for layer in layers],
            "symbol": ["circle-open" if layer in hollow else "circle" for layer in layers],
            "size": 9,
            "line": {"width": 1, "color": light("card")},
        },
        text=[str(layer) for layer in layers],
        textposition="top center",
        textfont={"size": 11, "color": light("muted")},
        customdata=[
            f"<b>layer {layer}</b><br>{titles[0]}: {_shown(across[layer])}<br>{titles[1]}: {_shown(upwards[layer])}"
            for layer in layers
        ],
        hovertemplate="%{customdata}<extra></extra>",
    )


def _diagonal(scores: list[Score]) -> Trace:
    ends = limits(bound for score in scores for bound in (score.value, score.low, score.high)) or (0.0, 1.0)
    return scatter(
        x=list(ends),
        y=list(ends),
        mode="lines",
        line={"color": light("zero"), "dash": "dot", "width": 1.5},
        hoverinfo="skip",
        name="equal",
    )


def _shown(score: Score) -> str:
    return between(score.value, score.low, score.high)


def _whiskers(scores: list[Score]) -> dict[str, Any]:
    return {
        "type": "data",
        "symmetric": False,
        "array": [0.0 if score.high is None else max(0.0, score.high - score.value) for score in scores],
        "arrayminus": [0.0 if score.low is None else max(0.0, score.value - score.low) for score in scores],
        "color": faded(light("muted"), 0.45),
        "thickness": 1.2,
        "width": 0,
    }
