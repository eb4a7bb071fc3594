"""The page of a growth run: its chapters, its figures, what is missing said in a line."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from layerwise.experiments.summary import summary
from layerwise.report import ReportData, markdown, render
from layerwise.report.figures.loss_vs_cost import FRONTIER, costed
from layerwise.report.figures.scatter import phase_scatter
from layerwise.report.growth.lookup import GrowthScores, PhaseSteps
from layerwise.report.growth.training_cost import frontier, loss_curves
from layerwise.results.rows import Note
from report import grown
from report.grown import row
from report.page.test_render import read

CHAPTERS = ("growth", "training", "held_out", "schedule", "rates", "accounting", "provenance")
MISSING = {
    ("growth",): "No arms were compared in this run",
    ("training",): "No finished training noted its losses",
    ("held_out", "growth"): "Nothing was measured on held-out text",
    ("schedule",): "No schedule was written into this run",
    ("rates",): "No learning rates were swept in this run",
    ("accounting", "training"): "Neither the cost of the phases",
}


@pytest.fixture(scope="module")
def data() -> ReportData:
    return grown.run(8)


@pytest.fixture(scope="module")
def html(data: ReportData) -> str:
    return render(data)


def figures(html: str) -> dict[str, Any]:
    return dict(json.loads(read(html).json)["figures"])


def chapters(html: str) -> list[str]:
    return [name for name in read(html).ids if name in (*CHAPTERS, "robustness", "study", "headline")]


def test_every_chapter_is_written_once_in_order(html: str) -> None:
    assert chapters(html) == list(CHAPTERS)
    assert 'class="missing"' not in html
    assert read(html).open == []


def test_the_verdict_stands_on_top_with_its_badge(html: str) -> None:
    sentence = re.search(r'<p class="verdict-sentence">(.*?)</p>', html)
    assert sentence is not None
    assert "the importance schedule is better than uniform training" in sentence[1]
    assert 'class="badge resolved"' in sentence[1]
    assert html.index("verdict-sentence") < html.index('id="training"')


def test_every_figure_has_data_and_every_difference_its_interval_and_its_null(html: str) -> None:
    drawn = figures(html)
    assert set(drawn) == {
        "courses", "differences-0", "differences-1", "differences-2", "held-out", "controls-0", "rates", "importance",
        "forecast", "budgets",
    }  # fmt: skip
    assert all(variant["data"] for figure in drawn.values() for variant in figure["variants"].values())
    for name in ("differences-0", "differences-1", "differences-2", "controls-0"):
        layout, traces = (drawn[name]["variants"][""][key] for key in ("layout", "data"))
        assert all(trace["error_x"]["array"][0] > 0.0 for trace in traces)
        assert [shape["x0"] for shape in layout["shapes"]] == [0.0]
    ranges = {tuple(drawn[f"differences-{at}"]["variants"][""]["layout"]["xaxis"]["range"]) for at in range(3)}
    assert len(ranges) == 1, "terms are read side by side, on one scale"


def test_courses_are_switched_by_terms_and_by_how_much_is_seen(html: str) -> None:
    assert set(figures(html)["courses"]["variants"]) == {f"{at}.{whole}" for at in range(3) for whole in range(2)}


def test_every_schedule_is_drawn_with_its_text(html: str) -> None:
    assert html.count('class="timetable"') == 8
    assert html.count("Schedule of published, depth by time") == 2


@pytest.mark.parametrize("left_out", MISSING)
def test_missing_rows_are_said_in_a_line(data: ReportData, left_out: tuple[str, ...]) -> None:
    written = render(grown.without(data, *left_out))
    assert MISSING[left_out] in written
    kept = ("growth", *(name for name in CHAPTERS[1:] if name not in left_out))  # the verdict says that there is none
    assert chapters(written) == list(kept)


def test_notes_are_printed_in_the_chapter_of_their_measure(data: ReportData) -> None:
    noted = replace(data, notes=tuple(Note(measure, f"left out of {measure}") for measure in CHAPTERS[:-1]))
    html = render(noted)
    for measure, following in pairwise(CHAPTERS):
        position = html.index(f"Left out of {measure}.<")
        assert html.index(f'id="{measure}"') < position < html.index(f'id="{following}"')


def test_one_schedule_alone_is_a_report_too(data: ReportData) -> None:
    kept = tuple(
        score
        for score in data.scores
        if score.measure not in ("growth", "rates") and score.subject.split("/")[0] == "stacking"
    )
    html = render(replace(data, scores=kept))
    assert MISSING["growth",] in html
    assert MISSING["rates",] in html
    assert html.count('class="timetable"') == 1
    assert "there is no frontier to judge the ends by" in html


def test_a_side_that_was_not_tuned_is_not_said_to_be(data: ReportData, html: str) -> None:
    assert "Both sides were tuned" in html
    one_sided = tuple(s for s in data.scores if s.measure != "rates" or s.subject == "uniform")
    alone = render(replace(data, scores=one_sided))
    assert "Only uniform was tuned." in alone
    assert "Both sides" not in alone


def test_an_unfinished_training_is_announced(data: ReportData) -> None:
    cut = tuple(s for s in data.scores if (s.measure, s.metric, s.subject) != ("training", "steps", "ramp/1"))
    assert "1 training (ramp/1) is not complete" in render(replace(data, scores=cut))


def test_names_that_users_chose_are_escaped(data: ReportData) -> None:
    rows = [
        row("schedule", "<i>mine", "0-9 <b>first", "0", 1.0),
        row("held_out", "<i>mine/0", "test", "nll", 4.0, 0.1),
        row("accounting", "<i>mine", "0-9 <b>first", "predicted", 1.0),
        row("accounting", "<i>mine", "0-9 <b>first", "measured", 1.0),
        row("rates", "<i>mine", "0.1", "nll", 1.0),
        row("growth", "<i>mine - uniform", "flops", "difference", 0.1, 0.2),
    ]
    html = render(replace(data, scores=tuple(rows)))
    assert "<i>mine" not in html.replace(read(html).json, "")
    assert "<b>first" not in html.replace(read(html).json, "")


def test_the_end_of_the_courses_holds_every_end_and_the_whole_begins_at_nothing() -> None:
    found = GrowthScores.of(grown.scores(8))
    arms, ends = loss_curves(found, "tokens"), frontier(found, "tokens")
    slots = dict.fromkeys(arms, 0)
    late, whole = (costed(arms, ends, slots, across="tokens", upwards="", late=late) for late in (True, False))
    low, high = late.layout["xaxis"]["range"]
    bottom, top = late.layout["yaxis"]["range"]
    for arm, losses in arms.items():
        last = max(losses)
        assert low < last < high
        assert bottom < losses[last].value < top
        (line,) = (trace for trace in late.traces if trace["name"] == arm and trace["mode"] == "lines+markers")
        *before, end = line["error_y"]["array"]
        assert end == pytest.approx((losses[last].high or 0.0) - losses[last].value)
        assert set(before) == {0.0}
    assert whole.layout["xaxis"]["range"][0] == 0.0
    assert whole.layout["xaxis"]["range"][1] > max(ends)
    assert FRONTIER in {trace["name"] for trace in late.traces}


def test_the_bar_of_a_forecast_lies_about_the_line_where_both_are_equal() -> None:
    pair = (row("accounting", "a", "0-9 x", "predicted", 0.5), row("accounting", "a", "0-9 x", "measured", 0.6, 0.05))
    figure = phase_scatter({"a": {PhaseSteps(0, 9, "x"): pair}}, {"a": 0}, bar=0.2)
    band, equal, dots = figure.traces
    top = equal["x"][1]
    assert equal["x"] == equal["y"] == [0.0, top]
    assert max(band["y"]) == pytest.approx(1.2 * top)
    assert dots["error_y"]["array"][0] == pytest.approx(0.05)
    assert "predicted 0.500, measured 0.600" in dots["text"][0]


def test_the_terminal_is_told_the_arms_and_the_verdict(data: ReportData) -> None:
    lines = summary(data).splitlines()
    assert lines[1].startswith("uniform")
    assert any(line.startswith("- Does training where layers need it help? At equal FLOPs") for line in lines)
    assert "robustness" not in summary(data)


def test_markdown_has_the_verdict_and_the_tables(data: ReportData) -> None:
    text = markdown(data)
    for title in ("Schedules compared", "Every difference", "Phases", "Learning rates", "Cost"):
        assert f"## {title}\n" in text
    assert "- **Does training where layers need it help?** (resolved) At equal FLOPs" in text
    assert "Who survives what" not in text
