"""Speculative decoding: drafting is faster only where the interval says so, and a run may have stopped before it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from layerwise.report import render, terminal_lines
from layerwise.report.kinds.timing import SPECULATION_KIND
from tools.golden.outputs import stored

RUN = stored("speculation-planted")


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [
        (1.01, 1.3, ": faster."), (0.8, 0.99, ": slower."), (1.0, 1.3, ": no difference is resolvable."),
        (None, None, "."),
    ],
)  # fmt: skip
def test_drafting_is_faster_only_where_the_interval_says_so(low: float, high: float, verdict: str) -> None:
    rows = tuple(replace(row, low=low, high=high) if row.metric == "ratio" else row for row in RUN.scores)
    answer = SPECULATION_KIND.answer(replace(RUN, scores=rows))
    assert answer.startswith("speculative with 0 11 is 1.10 ")
    assert answer.endswith(f"x as fast as generate{verdict}")


@pytest.mark.parametrize("absent", [{"acceptance"}, {"acceptance", "bound"}])
def test_a_share_of_nothing_is_left_out(absent: set[str]) -> None:
    rows = tuple(row for row in RUN.scores if row.measure != "speculation" or row.metric not in absent)
    lines = list(terminal_lines(SPECULATION_KIND, replace(RUN, scores=rows)))
    assert len(lines) == 7 - ("bound" in absent)
    assert not [line for line in lines if "kept" in line]


def test_before_generation_there_is_what_is_expected() -> None:
    before = replace(RUN, scores=tuple(RUN.rows.where(measure="speculation_draft")))
    assert "Nothing was generated yet" in render(before)
    assert next(iter(terminal_lines(SPECULATION_KIND, before))).startswith("- draft 0 11: ")
