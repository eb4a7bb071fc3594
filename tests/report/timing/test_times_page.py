"""The page of timed passes: every number with its interval, in every phase."""

from __future__ import annotations

import plotly.graph_objects as go
import pytest

from layerwise.report import Evidence, ReportData, TimeScores, render, time_lines
from layerwise.report.page.groups import written
from layerwise.report.timing.chapter import TIMED, times_table
from layerwise.results.rows import Score

SETTINGS = ("prefill, batch 1, context 8", "decode, batch 1, context 8")
TIMES = {"0-5": 6.0, "0 (1|2) 3-5, fused": 5.123456, "a<b": 4.0}


def rows() -> list[Score]:
    return [
        Score("time", name, setting, metric, value, 0.9 * value, 1.1 * value, documents=20)
        for setting in SETTINGS
        for name, ms in TIMES.items()
        for metric, value in (("ms", ms), ("ratio", ms / 6))
    ]


def data(scores: list[Score]) -> ReportData:
    return ReportData({"model": "tiny", "corpus": "random tokens"}, (), tuple(scores))


def test_every_plan_has_its_times_in_every_phase() -> None:
    table = times_table(TimeScores.of(rows()), SETTINGS[1])
    assert [row[0] for row in table.body] == list(TIMES)
    assert table.body[1][1:] == ("5.123 [4.611, 5.636]", "0.854 [0.769, 0.939]")
    assert [line for line in time_lines(TimeScores.of(rows())) if line.endswith(":")] == [f"{s}:" for s in SETTINGS]


def test_the_page_has_a_picture_a_phase_and_escapes_names() -> None:
    evidence = Evidence.of(data(rows()))
    (chapter,) = [each for each in written(evidence) if each.anchor == "time"]
    (picture,) = chapter.pictures
    assert len(picture.variants) == len(SETTINGS)
    for figure in picture.variants.values():
        go.Figure(figure.payload())
    page = render(data(rows()))
    assert "a<b" not in page.partition('id="report-data"')[0]
    assert "20" in {name: value for value, name in TIMED.tiles(evidence)}["rounds"]


@pytest.mark.parametrize("measure", ["effect", "latency"])
def test_a_run_of_another_kind_has_no_such_chapter(measure: str) -> None:
    evidence = Evidence.of(data([Score(measure, "0-2", "all", "delta_nll", 0.1)]))
    assert not TIMED.present(evidence)
