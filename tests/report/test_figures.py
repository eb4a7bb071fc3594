"""Every figure of every kind of page is one that Plotly knows: its own check, which the pages are built without."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import plotly.graph_objects as go
import pytest

from layerwise.report import ReportData
from layerwise.report.figures.frame import level_line, upright_band, upright_line
from layerwise.report.page.render import written
from report import diagnosed, grown, pretrained, robust, synthetic
from tier import first_fast

FAMILIES = ("painters", "leave_one_out", "swap_adjacent", "every_window")


def of_one_family(data: ReportData) -> ReportData:
    """The run as if all its plans were of a family that nothing is known of."""
    return replace(data, plans=tuple(replace(record, family="many") for record in data.plans))


RUNS: dict[str, Callable[[], ReportData]] = {
    "sweep": lambda: synthetic.run(6, FAMILIES, tasks=("text", "sorting")),
    "sweep of more strategies than are drawn as curves": lambda: of_one_family(
        synthetic.run(12, ("gain_sweep",), tasks=())
    ),
    "sweep of loops and gains": lambda: synthetic.looped_run(8),
    "diagnosis": lambda: diagnosed.diagnosis(4, tasks=("all",)),
    "robustness of a classifier": lambda: robust.run(4),
    "robustness of a language model": lambda: robust.run(4, language=True),
    "pre-training": pretrained.run,
    "growth": grown.run,
}


def without_intervals(data: ReportData) -> ReportData:
    bare = {"low": None, "high": None, "p": None, "p_adjusted": None, "mde": None}
    return replace(data, scores=tuple(replace(score, **bare) for score in data.scores))


def figures(data: ReportData) -> list[dict[str, Any]]:
    """Every distinct figure of a page, as the page has it."""
    pictures = [picture for chapter in written(data) for picture in chapter.pictures]
    texts = dict.fromkeys(json.dumps(figure.payload()) for picture in pictures for figure in picture.variants.values())
    return [json.loads(text) for text in texts]


@pytest.mark.parametrize("kind", first_fast(RUNS, 2))
def test_plotly_knows_every_property_and_reads_every_value_as_it_is_written(kind: str) -> None:
    whole = RUNS[kind]()
    drawn = [*figures(whole), *figures(without_intervals(whole))]
    assert len(drawn) > 9
    for figure in drawn:
        read = json.loads(go.Figure(figure).to_json())
        del read["layout"]["template"], figure["layout"]["template"]
        assert read == figure


def test_lines_and_bands_across_the_figure_are_those_that_plotly_would_add() -> None:
    figure = go.Figure()
    figure.add_hline(y=2.0, opacity=0.6)
    figure.add_vline(x=3.0, line={"dash": "dot"})
    figure.add_vrect(x0=-1.0, x1=1.0, fillcolor="#0072b2", line_width=0, layer="below")
    drawn = [level_line(2.0, opacity=0.6), upright_line(3.0, line={"dash": "dot"}), upright_band(-1.0, 1.0, "#0072b2")]
    assert json.loads(figure.to_json())["layout"]["shapes"] == drawn
