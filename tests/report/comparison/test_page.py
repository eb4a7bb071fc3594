"""The page of a comparison: whole, safe, and with every model in every figure."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from layerwise.report import Compared, ReportData, comparison_lines, comparison_page, over_models
from report import synthetic
from report.comparison.several import diagnoses, named, sweeps
from report.page.test_render import read


def written(folders: list[tuple[str, ReportData]]) -> str:
    compared = Compared.of(folders)
    return comparison_page(compared, over_models(compared))


def test_sweeps_have_every_chapter_and_every_model_in_every_figure() -> None:
    page = read(written(sweeps()))
    assert page.loads == [link for link in page.loads if link.startswith("#")]
    assert set(page.ids) >= {"models", "claims", "curves", "layers", "similarity", "runs"}
    figures = json.loads(page.json)["figures"]
    assert {name.partition("-")[0] for name in figures} == {"curves", "layers", "similarity"}
    assert sum(name.startswith("curves-") for name in figures) == len(synthetic.HARM)
    for name, figure in figures.items():
        if not name.startswith("similarity"):
            traces = figure["variants"]["0"]["data"]
            assert {trace["legendgroup"] for trace in traces} == {"small", "medium", "large"}


def test_maps_have_one_size_and_one_scale_however_deep_the_model() -> None:
    figures = json.loads(read(written(sweeps())).json)["figures"]
    maps = [figure["variants"]["0"] for name, figure in figures.items() if name.startswith("similarity")]
    assert [len(each["data"][0]["z"]) for each in maps] == [9, 13, 21]
    assert len({each["layout"]["height"] for each in maps}) == 1
    assert len({(each["data"][0]["zmin"], each["data"][0]["zmax"]) for each in maps}) == 1
    assert all(each["layout"]["shapes"] for each in maps)


def test_diagnoses_have_claims_and_layers_and_say_what_none_of_them_has() -> None:
    html = written(diagnoses())
    page = read(html)
    assert {"models", "claims", "layers", "runs"} <= set(page.ids)
    assert "curves" not in page.ids
    assert "Weights oscillate" in html
    assert "In none of the runs" in html


def test_a_model_without_the_rows_is_named_in_each_chapter() -> None:
    bare = replace(synthetic.run(12, families=("leave_one_out",)))
    bare = replace(bare, scores=tuple(score for score in bare.scores if score.measure != "similarity"))
    html = written([*sweeps("small", "large"), ("runs/bare", named(bare, "bare"))])
    assert "No curve was measured of bare." in html
    assert "Similarity was not measured in bare." in html
    assert "missing in bare" in html


@pytest.mark.parametrize("name", ["</script><b>x</b>", "a|b & <i>"])
def test_names_stay_text(name: str) -> None:
    html = written([*sweeps("small"), ("runs/other", named(synthetic.run(12), name))])
    assert "<b>x</b>" not in html
    assert "<i>" not in html.replace("<i style", "")


def test_the_terminal_has_the_models_the_loss_and_the_claims() -> None:
    compared = Compared.of(sweeps("small", "large"))
    lines = comparison_lines(compared, over_models(compared))
    assert lines[0].split()[:3] == ["model", "layers", "parameters"]
    assert any(line.startswith("skip ") for line in lines)
    (line,) = [line for line in lines if line.startswith("Middle layers differ in")]
    assert line.split()[-4:] == ["supported", "supported", "holds", "holds"]
