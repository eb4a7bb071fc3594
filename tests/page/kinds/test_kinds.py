"""Properties of every kind of run, in HTML, Markdown and terminal."""

import json
import math
import re
from dataclasses import replace

import pytest

from layerwise.page import ReportData, markdown, render
from layerwise.page.kind import Kind, Text
from layerwise.page.kinds import load_kinds
from layerwise.page.writers import markdown_parts
from layerwise.page.writers.html import write_chapters
from layerwise.results.rows import Score
from page.page.test_render import read
from page.planted import of
from tier import by_tier
from tools.golden import outputs
from tools.golden.outputs import stored

RUNS = [
    (kind, name)
    for name in outputs.kinds()
    if name not in outputs.COMPARED
    for kind in load_kinds()
    if kind.is_of(stored(name))
]
OF_KIND = {kind.name: [name for each, name in RUNS if each is kind] for kind in load_kinds()}
PLANTED = [name for name in dict.fromkeys(name for _, name in RUNS) if name.endswith("-planted")]


each_run = pytest.mark.parametrize(
    ("kind", "name"),
    [
        pytest.param(
            kind,
            name,
            id=f"{kind.name}-{name}",
            marks=() if name in PLANTED or not set(OF_KIND[kind.name]) & set(PLANTED) else pytest.mark.nightly,
        )
        for kind, name in RUNS
    ],
)
"""Runs that are neither planted nor the only one of a kind are nightly."""
UNSPOKEN = re.compile(r"(?<!\w)(nan|inf|None|NaN|not finite)(?!\w)|[{}]")


@each_run
def test_pages_start_with_the_answer(kind: Kind, name: str) -> None:
    data = stored(name)
    first = next(section for section in kind.sections if section.present(data))
    assert kind.answer(data)
    assert not isinstance(first.of(kind).parts_of(data)[0], Text)
    assert any(markdown_parts(kind, data))
    for picture in (picture for chapter in write_chapters(kind, data) for picture in chapter.pictures):
        assert picture.alternative
        assert picture.variants
        assert all(figure.payload()["data"] for figure in picture.variants.values())


@pytest.mark.parametrize("output", ["terminal.txt", "report.md", "page.txt"])
@pytest.mark.parametrize("name", outputs.kinds())
def test_no_page_shows_none_or_nan(name: str, output: str) -> None:
    assert not UNSPOKEN.findall((outputs.FOLDER / name / output).read_text(encoding="utf-8"))


@each_run
def test_every_section_has_content_or_a_line_why_not(kind: Kind, name: str) -> None:
    """With all rows, with each measure alone, and without each (the first two in the fast tier)."""
    whole = stored(name)
    whole = replace(whole, scores=tuple(row for row in whole.scores if row.measure != "training" or not row.seed))
    measures = whole.rows.axis("measure")
    for left in (
        measures,
        *(tuple(each for each in measures if each != absent) for absent in measures[: by_tier(fast=2, nightly=99)]),
        *((each,) for each in kind.measures if each in measures),
    ):
        data = replace(whole, scores=tuple(whole.rows.where(measure=left)), losses=())
        for section, chapter in zip(kind.sections, write_chapters(kind, data), strict=True):
            assert chapter.title
            assert chapter.absence == ("" if section.present(data) else section.of(kind).missing)
            assert bool(chapter.body) != bool(chapter.absence)


@pytest.mark.parametrize("name", PLANTED)
def test_non_finite_values_do_not_break_the_page(name: str) -> None:
    whole = stored(name)
    rows = tuple(
        replace(row, value=math.inf if at % 7 == 0 else row.value, low=math.nan if at % 5 == 0 else row.low)
        for at, row in enumerate(whole.scores)
    )
    wild = replace(whole, scores=rows)
    page = read(render(wild))
    assert page.open == []
    json.loads(page.json, parse_constant=lambda name: pytest.fail(name))
    assert markdown(wild)


def test_every_kind_has_a_golden_run() -> None:
    """Comparisons have no rows, and `test_robustness.py` covers trainings alone."""
    assert {kind.name for kind in load_kinds() if not OF_KIND[kind.name]} == {"comparison", "training"}
    assert [kind.name for kind in load_kinds() if kind.is_of(of(Score("latency", "ms", 0.1, plan="0-2")))] == ["search"]
    assert not [kind.name for kind in load_kinds() if kind.is_of(ReportData({}, (), ()))]
