"""The part of plotly.js that comes with the report: as it was published, and it knows what the figures draw."""

from __future__ import annotations

import hashlib
import json
import re
from importlib.resources import files

import plotly
import pytest

from layerwise.report.page.render import PLOTLY
from report.test_figures import RUNS, figures

FOLDER = files("layerwise.report").joinpath("plotlyjs")
SOURCE = json.loads(FOLDER.joinpath("source.json").read_text())
BUNDLE = files("layerwise.report").joinpath(PLOTLY).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", [PLOTLY.rpartition("/")[2], "LICENSE"])
def test_files_are_those_that_were_published(name: str) -> None:
    assert hashlib.sha256(FOLDER.joinpath(name).read_bytes()).hexdigest() == SOURCE["sha256"][name]


def test_the_version_and_the_licence_are_those_that_it_names() -> None:
    assert re.findall(r"^\* plotly\.js \((\w+) - minified\) v([\d.]+)$", BUNDLE, re.MULTILINE) == [
        ("cartesian", SOURCE["version"])
    ]
    assert SOURCE["version"] in SOURCE["archive"]
    assert "Licensed under the MIT license" in BUNDLE[:300]
    assert FOLDER.joinpath("LICENSE").read_text().startswith("MIT License")


def test_plotly_for_python_checks_figures_for_the_same_plotly_js() -> None:
    """The tests have it check every figure, by the schema of the plotly.js that it brings."""
    whole = files(plotly).joinpath("package_data/plotly.min.js").read_text(encoding="utf-8")
    assert f"* plotly.js v{SOURCE['version']}\n" in whole[:200]


def test_it_draws_every_kind_of_trace_that_a_page_has() -> None:
    drawn = {trace["type"] for kind in RUNS.values() for figure in figures(kind()) for trace in figure["data"]}
    known = set(re.findall(r'moduleType:"trace",name:"(\w+)"', BUNDLE))
    assert {"scatter", "bar", "heatmap"} <= drawn <= known
    assert "scatter3d" not in known  # a part, and not the whole of it


def test_it_cannot_end_the_script_that_it_stands_in() -> None:
    assert "</script" not in BUNDLE.lower()
    assert "<!--" not in BUNDLE
