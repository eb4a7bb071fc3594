"""Texts side by side: a table for each prompt, everything that a model wrote escaped."""

from __future__ import annotations

from dataclasses import replace

from layerwise.report import Evidence
from layerwise.report.page.groups import written
from layerwise.report.sweep.continuations import continuation_lines
from layerwise.results.rows import Continuation
from report import synthetic

WRITTEN = (
    Continuation("0-5", "two <words>", " and\nmore", 3, 3),
    Continuation("0 1 5", "two <words>", " <script>alert(1)</script>", 4, 0),
    Continuation("0-5", "else", " x", 1, 1),
)


def test_the_chapter_has_a_table_for_each_prompt_and_escapes_what_was_written() -> None:
    data = synthetic.run(6)
    notes = tuple(each.note() for each in WRITTEN)
    (chapter,) = [each for each in written(Evidence.of(replace(data, notes=notes))) if each.anchor == "texts"]
    html = "".join(chapter.body)
    assert html.count("<table>") == 2
    assert "two &lt;words&gt;" in html
    assert " and<br>more" in html
    assert "<script>" not in html
    assert "0 of 4" in html
    assert ">skip<" in html
    assert '{"plan"' not in html


def test_without_texts_there_is_no_chapter() -> None:
    assert "texts" not in {chapter.anchor for chapter in written(Evidence.of(synthetic.run(6)))}


def test_the_terminal_shows_a_line_for_each_plan() -> None:
    lines = continuation_lines(WRITTEN)
    assert lines[1].split() == ["after", "two", "<words>", "as", "trained", "text"]
    assert lines[2].split() == ["0-5", "3/3", "and", "more"]
    assert [line for line in lines if line.startswith("after")] == [lines[1], lines[5]]
    assert continuation_lines(()) == ()
    assert max(map(len, continuation_lines([replace(WRITTEN[0], text="word " * 90)]))) < 160
