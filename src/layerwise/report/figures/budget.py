"""Where a race spent its tokens: a bar a layer, coloured by the verdict that ended it."""

from __future__ import annotations

from collections.abc import Mapping

from layerwise.report.figures.figure import Figure, Trace, bar
from layerwise.report.figures.frame import framed
from layerwise.report.notation import between, tidy
from layerwise.report.palette import SERIES, faded, light
from layerwise.results.rows import Score

MOST_TICKS = 24
COLOURS = {
    "matters": SERIES[0][0],
    "no_effect": faded(light("muted"), 0.45),
    "harmful": SERIES[1][0],
    "unresolved": faded(SERIES[2][0], 0.6),
}
WORDS = {"matters": "matters", "no_effect": "no effect", "harmful": "harmful", "unresolved": "not resolvable"}
LIMITS = {"no_effect": "no effect above", "unresolved": "not resolvable below"}


def spending(verdicts: Mapping[int, Score]) -> Figure:
    """Tokens spent on each layer until its verdict was settled; a layer without a token count has no bar."""
    return framed(
        320,
        [_bars(verdicts, verdict, colour) for verdict, colour in COLOURS.items()],
        x={"title": "layer", "showgrid": False, "dtick": 1 if len(verdicts) <= MOST_TICKS else None},
        y={"title": "tokens spent", "rangemode": "tozero"},
        bargap=0.28,
        margin={"l": 48, "r": 12, "t": 32, "b": 40},
        showlegend=True,
        legend={"orientation": "h", "y": 1.0, "yanchor": "bottom", "x": 0},
    )


def _bars(verdicts: Mapping[int, Score], verdict: str, colour: str) -> Trace:
    rows = {layer: score for layer, score in verdicts.items() if score.metric == verdict and score.tokens}
    return bar(
        x=list(rows),
        y=[score.tokens for score in rows.values()],
        marker={"color": colour, "line": {"width": 0}},
        text=[_told(layer, score) for layer, score in rows.items()],
        textposition="none",
        hovertemplate="%{text}<extra></extra>",
        legendgroup=verdict,
        name=WORDS[verdict],
    )


def _told(layer: int, score: Score) -> str:
    limit = LIMITS.get(score.metric)
    above = f"<br>{limit} {tidy(score.resolution)} nats" if score.resolution and limit else ""
    effect = between(score.value, score.low, score.high, signed=True)
    return (
        f"<b>layer {layer}: {WORDS[score.metric]}</b><br>{effect} nats per token<br>{score.tokens or 0:,} tokens{above}"
    )
