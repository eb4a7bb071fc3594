"""A bar a layer, by depth: what the layer is worth, and what its verdict took."""

from __future__ import annotations

import math
from collections.abc import Mapping

from layerwise.report.evidence import DELTA, Evidence
from layerwise.report.figures.figure import Figure, Trace, bar
from layerwise.report.figures.frame import DELTA_AXIS, LEGEND, framed, hover, interval, whiskers
from layerwise.report.page.number_format import is_resolved, tidy
from layerwise.report.page.palette import SERIES, faded, light
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


def layer_bars(
    evidence: Evidence, task: str, plans: Mapping[int, str], title: str, span: tuple[float, float] | None = None
) -> Figure:
    """A bar a layer with its interval: the effect of the plan that stands for the layer.

    Strong bars are distinguished from zero after correction; pale bars are not. `title` names a bar, with `{0}` for the
    layer and `{1}` for the next one; `span` fixes the vertical axis, for figures that stand side by side.
    """
    level = evidence.data.level
    effects = {layer: evidence.effect(plans[layer], task, DELTA) for layer in sorted(plans)}
    scores = {layer: score for layer, score in effects.items() if score and math.isfinite(score.value)}
    pale = faded(light("muted"), 0.35)
    bars = bar(
        x=list(scores),
        y=[score.value for score in scores.values()],
        error_y=whiskers(scores.values(), light("ink"), thickness=1.2, width=3),
        marker={
            "color": [light("accent") if is_resolved(score, level) else pale for score in scores.values()],
            "line": {"width": 0},
        },
        text=[hover(title.format(layer, layer + 1), plans[layer], score, level) for layer, score in scores.items()],
    )
    return framed(360, [bars], x=_layers(len(scores)), y={"title": DELTA_AXIS, "range": span}, bargap=0.28)


def spending(verdicts: Mapping[int, Score]) -> Figure:
    """Tokens spent on each layer until its verdict was settled; a layer without a token count has no bar."""
    return framed(
        320,
        [_spent(verdicts, verdict, colour) for verdict, colour in COLOURS.items()],
        x=_layers(len(verdicts)),
        y={"title": "tokens spent", "rangemode": "tozero"},
        bargap=0.28,
        margin={"l": 48, "r": 12, "t": 32, "b": 40},
        showlegend=True,
        legend=LEGEND,
    )


def _layers(count: int) -> dict[str, object]:
    return {"title": "layer", "showgrid": False, "dtick": 1 if count <= MOST_TICKS else None}


def _spent(verdicts: Mapping[int, Score], verdict: str, colour: str) -> Trace:
    rows = {layer: score for layer, score in verdicts.items() if score.metric == verdict and score.tokens}
    return bar(
        x=list(rows),
        y=[score.tokens for score in rows.values()],
        marker={"color": colour, "line": {"width": 0}},
        text=[_hover(layer, score) for layer, score in rows.items()],
        legendgroup=verdict,
        name=WORDS[verdict],
    )


def _hover(layer: int, score: Score) -> str:
    limit = LIMITS.get(score.metric)
    above = f"<br>{limit} {tidy(score.mde)} nats" if score.mde and limit else ""
    effect = f"{interval(score, signed=True)} nats per token"
    return f"<b>layer {layer}: {WORDS[score.metric]}</b><br>{effect}<br>{score.tokens or 0:,} tokens{above}"
