"""What holds for every kind of run that is data, on the golden runs: figures, answers, runs that were stopped."""

from __future__ import annotations

from dataclasses import replace

import plotly.graph_objects as go
import pytest

from layerwise.report import KINDS, ReportData, render
from layerwise.report.kind import Kind, Says
from layerwise.report.writers.html import chapters
from tools.golden import outputs

RUNS = [
    (kind, name)
    for name in outputs.kinds()
    if name not in outputs.COMPARED
    for kind in KINDS
    if kind.is_of(outputs.stored(name))
]
each_run = pytest.mark.parametrize(
    ("kind", "name"), RUNS, ids=[f"{kind.name}-{name}" for kind, name in RUNS]
)  # fmt: skip


@each_run
def test_plotly_knows_every_picture(kind: Kind, name: str) -> None:
    for chapter in chapters(kind, outputs.stored(name)):
        for picture in chapter.pictures:
            assert picture.alternative
            for figure in picture.variants.values():
                go.Figure(figure.payload())


@each_run
def test_the_page_begins_with_the_answer_and_what_shows_it(kind: Kind, name: str) -> None:
    data = outputs.stored(name)
    first = next(section for section in kind.sections if section.present(data))
    assert kind.answer(data)
    assert not isinstance(first.parts_of(data)[0], Says)


@each_run
def test_a_run_that_has_one_of_its_measures_alone_has_a_page(kind: Kind, name: str) -> None:
    stored = outputs.stored(name)
    for measure in kind.measures:
        rows = tuple(stored.rows.where(measure=measure))
        if rows:
            assert render(replace(stored, scores=rows, losses=(), plans=()))


def test_a_kind_without_rows_is_none() -> None:
    assert not [kind.name for kind in KINDS if kind.is_of(ReportData({}, (), ()))]
