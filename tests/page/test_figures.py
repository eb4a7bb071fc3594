"""Plotly, and the part of plotly.js in the page, know every figure of every kind."""

import hashlib
import json
import re
from dataclasses import replace
from importlib.resources import files
from typing import Any

import plotly
import plotly.graph_objects as go
import pytest

from layerwise.page import ReportData
from layerwise.page.figures.frame import horizontal_line, vertical_band, vertical_line
from layerwise.page.render import PLOTLY, build_chapters
from page import synthetic
from page.planted import without_intervals
from tools.golden import outputs

MANY = synthetic.run(12, ("gain_sweep",), tasks=())
RUNS: dict[str, ReportData] = {
    **{name: outputs.stored(name) for name in outputs.kinds() if name.endswith("-planted")},
    "sweep of more strategies than are drawn as curves": replace(
        MANY, plans=tuple(replace(record, family="many") for record in MANY.plans)
    ),
}
FOLDER = files("layerwise.page").joinpath("plotlyjs")
SOURCE = json.loads(FOLDER.joinpath("source.json").read_text())
BUNDLE = files("layerwise.page").joinpath(PLOTLY).read_text(encoding="utf-8")


def figures(data: ReportData) -> list[dict[str, Any]]:
    pictures = [picture for chapter in build_chapters(data) for picture in chapter.pictures]
    texts = dict.fromkeys(json.dumps(figure.payload()) for picture in pictures for figure in picture.variants.values())
    return [json.loads(text) for text in texts]


@pytest.mark.parametrize(
    ("kind", "bare"),
    [
        pytest.param(kind, bare, marks=pytest.mark.nightly if bare and kind != "sweep-planted" else ())
        for kind in RUNS
        for bare in (False, True)
    ],
)
def test_plotly_accepts_every_figure(kind: str, bare: bool) -> None:
    for figure in figures(without_intervals(RUNS[kind]) if bare else RUNS[kind]):
        read = json.loads(go.Figure(figure).to_json())
        del read["layout"]["template"], figure["layout"]["template"]
        assert read == figure


def test_lines_and_bands_equal_those_of_plotly() -> None:
    figure = go.Figure()
    figure.add_hline(y=2.0, opacity=0.6)
    figure.add_vline(x=3.0, line={"dash": "dot"})
    figure.add_vrect(x0=-1.0, x1=1.0, fillcolor="#0072b2", line_width=0, layer="below")
    drawn = [
        horizontal_line(2.0, opacity=0.6),
        vertical_line(3.0, line={"dash": "dot"}),
        vertical_band(-1.0, 1.0, "#0072b2"),
    ]
    assert json.loads(figure.to_json())["layout"]["shapes"] == drawn


def test_the_plotly_build_is_the_published_one() -> None:
    for name in (PLOTLY.rpartition("/")[2], "LICENSE"):
        assert hashlib.sha256(FOLDER.joinpath(name).read_bytes()).hexdigest() == SOURCE["sha256"][name]
    assert re.findall(r"^\* plotly\.js \((\w+) - minified\) v([\d.]+)$", BUNDLE, re.MULTILINE) == [
        ("cartesian", SOURCE["version"])
    ]
    assert SOURCE["version"] in SOURCE["archive"]
    assert "Licensed under the MIT license" in BUNDLE[:300]
    assert FOLDER.joinpath("LICENSE").read_text().startswith("MIT License")


def test_plotly_versions_agree() -> None:
    whole = files(plotly).joinpath("package_data/plotly.min.js").read_text(encoding="utf-8")
    assert f"* plotly.js v{SOURCE['version']}\n" in whole[:200]


def test_the_plotly_build_draws_every_trace_type() -> None:
    frozen = (path.read_text(encoding="utf-8") for path in outputs.FOLDER.glob("*/figures.json"))
    drawn = {kind for text in frozen for kind in re.findall(r'"type": "(\w+)"', text)}
    known = set(re.findall(r'moduleType:"trace",name:"(\w+)"', BUNDLE))
    assert {"scatter", "bar", "heatmap"} <= drawn <= known
    assert "scatter3d" not in known  # a part, and not the whole of it


def test_the_plotly_build_cannot_end_its_script() -> None:
    assert "</script" not in BUNDLE.lower()
    assert "<!--" not in BUNDLE
