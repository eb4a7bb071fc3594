"""A bar a layer, by depth: what the layer is worth."""

from __future__ import annotations

import math
from collections.abc import Mapping

from layerwise.report.evidence import DELTA, Evidence
from layerwise.report.figures.figure import Figure, bar
from layerwise.report.figures.frame import DELTA_AXIS, framed, hover, whiskers
from layerwise.report.page.number_format import is_resolved
from layerwise.report.page.palette import faded, light

MOST_TICKS = 24


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


def _layers(count: int) -> dict[str, object]:
    return {"title": "layer", "showgrid": False, "dtick": 1 if count <= MOST_TICKS else None}
