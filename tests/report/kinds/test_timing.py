"""The page of timed passes: every number with its interval, in every phase."""

from __future__ import annotations

import pytest

from layerwise.report import ReportData
from layerwise.report.kind import Pivot
from layerwise.report.kinds.timing import TIMING
from layerwise.results.rows import Score

SETTINGS = ("prefill, batch 1, context 8", "decode, batch 1, context 8")
TIMES = {"0-5": 6.0, "0 (1|2) 3-5, fused": 5.123456, "a<b": 4.0}


def rows() -> list[Score]:
    return [
        Score("time", metric, value, 0.9 * value, 1.1 * value, plan=name, condition=setting, documents=20)
        for setting in SETTINGS
        for name, ms in TIMES.items()
        for metric, value in (("ms", ms), ("ratio", ms / 6))
    ]


def data(scores: list[Score]) -> ReportData:
    return ReportData({"model": "tiny", "corpus": "random tokens"}, (), tuple(scores))


def test_every_plan_has_its_times_in_every_setting() -> None:
    (grid,) = (part for part in TIMING.sections[0].parts if isinstance(part, Pivot))
    tables = dict(grid.tables(data(rows())))
    assert list(tables) == list(SETTINGS)
    assert [row[0] for row in tables[SETTINGS[1]].body] == list(TIMES)
    assert tables[SETTINGS[1]].body[1][1:] == ("5.123 [4.611, 5.636]", "0.854 [0.769, 0.939]")


@pytest.mark.parametrize("measure", ["effect", "latency"])
def test_a_run_of_another_kind_has_no_such_chapter(measure: str) -> None:
    assert not TIMING.is_of(data([Score(measure, "delta_nll", 0.1, claim="0-2")]))
