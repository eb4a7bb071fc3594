"""What each layer is worth: bars by depth."""

from __future__ import annotations

import math
from collections.abc import Mapping

from layerwise.report.data import DELTA, Evidence
from layerwise.report.figures.figure import Figure, bar
from layerwise.report.figures.frame import DELTA_AXIS, framed, hover
from layerwise.report.notation import is_resolved
from layerwise.report.palette import faded, light
from layerwise.results.rows import Score

MOST_TICKS = 24


def layer_bars(
    evidence: Evidence, task: str, plans: Mapping[int, str], title: str, span: tuple[float, float] | None = None
) -> Figure:
    """A bar a layer with its interval, by depth: the effect of the plan that stands for the layer.

    Strong bars are told apart from zero after correction; pale bars are not. `title` names a bar, with `{0}` for the
    layer and `{1}` for the next one; `span` fixes the vertical axis, for figures that stand side by side.
    """
    level = evidence.data.level
    rows = [(layer, plans[layer], evidence.effect(plans[layer], task, DELTA)) for layer in sorted(plans)]
    measured = [(layer, plan, score) for layer, plan, score in rows if score and math.isfinite(score.value)]
    bars = bar(
        x=[layer for layer, _, _ in measured],
        y=[score.value for _, _, score in measured],
        error_y=_whiskers([score for _, _, score in measured]),
        marker={
            "color": [
                light("accent") if is_resolved(score, level) else faded(light("muted"), 0.35)
                for _, _, score in measured
            ],
            "line": {"width": 0},
        },
        text=[hover(title.format(layer, layer + 1), plan, score, level) for layer, plan, score in measured],
        textposition="none",
        hovertemplate="%{text}<extra></extra>",
    )
    return framed(
        360,
        [bars],
        x={"title": "layer", "showgrid": False, "dtick": 1 if len(measured) <= MOST_TICKS else None},
        y={"title": DELTA_AXIS, "range": span},
        bargap=0.28,
    )


def _whiskers(scores: list[Score]) -> dict[str, object]:
    return {
        "type": "data",
        "symmetric": False,
        "array": [0.0 if score.high is None else score.high - score.value for score in scores],
        "arrayminus": [0.0 if score.low is None else score.value - score.low for score in scores],
        "color": light("ink"),
        "thickness": 1.2,
        "width": 3,
    }
