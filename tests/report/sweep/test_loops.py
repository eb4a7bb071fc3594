"""Loops and gains on the page: the best of each window, the line through them, and the finding."""

from __future__ import annotations

from dataclasses import replace

import pytest

from layerwise.report import Evidence, ReportData
from layerwise.report.figures.loops import loop_map
from layerwise.report.page.groups import written
from layerwise.report.sweep.findings import findings
from layerwise.report.sweep.loops import by_window, line, loop_finding, loop_grid
from layerwise.report.sweep.window import half_window
from layerwise.results.rows import Score
from report import synthetic

WIDTHS = (3, 5, 7)


@pytest.fixture(scope="module")
def evidence() -> Evidence:
    return Evidence.of(synthetic.looped_run(8))


def changed(metric: str, **values: float | None) -> Evidence:
    data = synthetic.looped_run(8)
    scores = (replace(score, **values) if score.metric == metric else score for score in data.scores)
    return Evidence.of(replace(data, scores=tuple(scores)))


def test_the_best_number_of_each_window_is_that_of_the_least_effect(evidence: Evidence) -> None:
    assert loop_grid(evidence, "looped", "all").best == {width: width - 1 for width in WIDTHS}
    assert loop_grid(evidence, "gain_sweep", "all").best == {width: (width + 1) // 2 for width in WIDTHS}
    assert loop_grid(evidence, "painters", "all").best == {}


def test_a_window_with_one_number_has_no_best(evidence: Evidence) -> None:
    grid = loop_grid(evidence, "looped", "all")
    one = {key: score for key, score in grid.effects.items() if key[0] > 3 or key[1] == 2}
    assert set(replace(grid, effects=one).best) == {5, 7}


def test_the_line_goes_through_the_mean_of_the_best_counts(evidence: Evidence) -> None:
    assert line(evidence) == pytest.approx((-1.0, 1.0))
    assert {size: score.value for size, score in by_window(evidence, "best_loops").items()} == {3: 2, 5: 4, 7: 6}
    assert line(Evidence.of(synthetic.run(6))) is None


def test_the_map_marks_the_best_with_its_interval_and_draws_the_line_where_it_lies_on_the_map(
    evidence: Evidence,
) -> None:
    grid = loop_grid(evidence, "looped", "all")
    figure = loop_map(evidence, grid, "loops", best=by_window(evidence, "best_loops"), line=(-1.0, 1.0))
    colours, drawn, best = figure.traces
    assert (colours["x"], colours["y"]) == ([3, 5, 7], list(range(1, 9)))
    assert (list(drawn["x"]), list(drawn["y"])) == ([3, 5, 7], [2.0, 4.0, 6.0])
    assert (best["x"], best["y"], best["error_y"]["array"]) == ([3, 5, 7], [2, 4, 6], [1.0, 1.0, 1.0])
    steep = loop_map(evidence, grid, "loops", line=(0.0, 3.0))
    assert steep.traces[1]["x"] == []


@pytest.mark.parametrize(
    ("values", "begins", "state"),
    [
        ({}, "Yes. Over 3 windows", "resolved"),
        ({"low": -0.02, "high": 0.03}, "No: a gain does as well.", "resolved"),
        ({"low": -0.3, "high": -0.1}, "No: a gain does better.", "resolved"),
        ({"low": -0.1, "high": 0.6}, "Not resolvable.", "unresolved"),
        ({"low": None, "high": None}, "Not resolvable.", "described"),
    ],
)
def test_the_finding_says_whether_a_loop_is_more_than_a_gain(
    values: dict[str, float | None], begins: str, state: str
) -> None:
    finding = loop_finding(changed("gain:loops", **values))
    assert finding is not None
    assert finding.text.startswith(begins)
    assert finding.state == state


def test_numbers_of_loops_are_no_strategies_to_be_ranked(evidence: Evidence) -> None:
    assert half_window(evidence) is None
    assert next(finding.question for finding in findings(evidence)).startswith("Is a loop of parallel layers")


def test_the_chapter_says_what_was_not_measured() -> None:
    data = synthetic.run(6)
    assert "loops" not in {chapter.anchor for chapter in written(Evidence.of(data))}
    only = replace(data, plans=tuple(replace(record, family="looped") for record in data.plans))
    assert "loops" not in {chapter.anchor for chapter in written(Evidence.of(only))}


def test_gains_alone_are_drawn_without_a_line() -> None:
    data = synthetic.looped_run(8)
    gains = ReportData(
        data.manifest,
        tuple(record for record in data.plans if record.family == "gain_sweep"),
        tuple(score for score in data.scores if score.measure == "effect"),
    )
    (chapter,) = [each for each in written(Evidence.of(gains)) if each.anchor == "loops"]
    assert [picture.name for picture in chapter.pictures] == ["loops-gain"]


def test_windows_best_at_the_end_are_counted() -> None:
    ends = changed("at_end", value=2.0)
    (chapter,) = [each for each in written(ends) if each.anchor == "loops"]
    assert "2 windows best at the greatest number" in "".join(chapter.body)
    assert Score("contrast", "loop_count", "all", "at_end", 2.0, 0.0, 0.0, mde=0.0, tokens=9000) in ends.data.scores
