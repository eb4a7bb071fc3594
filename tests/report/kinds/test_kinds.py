"""What holds for every kind of run that is data, on the golden runs, in every output: HTML, Markdown and terminal."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from dataclasses import replace

import plotly.graph_objects as go
import pytest

from layerwise.report import KINDS, ReportData, markdown, render, terminal_lines
from layerwise.report.kind import Kind, Says
from layerwise.report.writers.chapter import Missing
from layerwise.report.writers.html import chapters
from report.page.test_render import read
from tools.golden import outputs

RUNS = [
    (kind, name)
    for name in outputs.kinds()
    if name not in outputs.COMPARED
    for kind in KINDS
    if kind.is_of(outputs.stored(name))
]
each_run = pytest.mark.parametrize(("kind", "name"), RUNS, ids=[f"{kind.name}-{name}" for kind, name in RUNS])
PLANTED = [name for name in dict.fromkeys(name for _, name in RUNS) if name.endswith("-planted")]
UNSPOKEN = re.compile(r"(?<!\w)(nan|inf|None|NaN|not finite)(?!\w)|[{}]")
"""What no reader should meet: a number that is none, or a field that nobody filled."""


def shown(kind: Kind, data: ReportData) -> Iterator[str]:
    """What a reader of each output meets of a kind."""
    yield " ".join(read("".join(map(str, chapter.body))).text for chapter in chapters(kind, data))
    yield markdown(data)
    yield "\n".join(terminal_lines(kind, data))


@each_run
def test_plotly_knows_every_picture_and_none_is_empty(kind: Kind, name: str) -> None:
    for chapter in chapters(kind, outputs.stored(name)):
        for picture in chapter.pictures:
            assert picture.alternative
            assert picture.variants
            for figure in picture.variants.values():
                assert figure.payload()["data"]
                go.Figure(figure.payload())


@each_run
def test_the_page_begins_with_the_answer_and_what_shows_it(kind: Kind, name: str) -> None:
    data = outputs.stored(name)
    first = next(section for section in kind.sections if section.present(data))
    assert kind.answer(data)
    assert not isinstance(first.of(kind).parts_of(data)[0], Says)


@each_run
def test_every_output_is_written_out(kind: Kind, name: str) -> None:
    for text in shown(kind, outputs.stored(name)):
        assert not UNSPOKEN.findall(text)


@each_run
def test_every_section_is_written_or_says_in_one_line_that_it_is_not(kind: Kind, name: str) -> None:
    """With all rows, and without those of each measure in turn."""
    stored = outputs.stored(name)
    for absent in (None, *stored.rows.axis("measure")):
        left = tuple(row for row in stored.scores if row.measure != absent)
        data = replace(stored, scores=left, losses=())
        for section, chapter in zip(kind.sections, chapters(kind, data), strict=True):
            lines = [piece.text for piece in chapter.body if isinstance(piece, Missing)]
            assert chapter.title
            assert lines == ([] if section.present(data) else [section.of(kind).missing])
            assert all(lines)
            assert chapter.body


@each_run
def test_a_run_that_has_one_of_its_measures_alone_has_a_page(kind: Kind, name: str) -> None:
    stored = outputs.stored(name)
    for measure in kind.measures:
        rows = tuple(stored.rows.where(measure=measure))
        if rows:
            page = read(render(replace(stored, scores=rows, losses=(), plans=())))
            assert page.open == []
            assert len(page.ids) == len(set(page.ids))


@pytest.mark.parametrize("name", PLANTED)
def test_values_that_are_not_finite_leave_the_page_whole(name: str) -> None:
    stored = outputs.stored(name)
    rows = tuple(
        replace(row, value=math.inf if at % 7 == 0 else row.value, low=math.nan if at % 5 == 0 else row.low)
        for at, row in enumerate(stored.scores)
    )
    wild = replace(stored, scores=rows)
    page = read(render(wild))
    assert page.open == []
    json.loads(page.json, parse_constant=lambda name: pytest.fail(name))
    assert markdown(wild)


def test_a_kind_without_rows_is_none() -> None:
    assert not [kind.name for kind in KINDS if kind.is_of(ReportData({}, (), ()))]
