"""The page of speculative decoding from planted rows: its sentences, its table, and a page that is whole."""

from __future__ import annotations

from collections.abc import Iterator

from layerwise.report import ReportData, SpeculationScores, render, speculation_lines
from layerwise.report.speculation.chapter import candidate_table
from layerwise.results.rows import Score


def rows(*, generated: bool = True) -> Iterator[Score]:
    yield Score("speculation_draft", "generate", "select", "tokens_per_second", 100.0)
    for plan, agreement in (("0 11", 0.5), ("0-10", 0.9)):
        for metric, value in (("agreement", agreement), ("length", 2.0), ("bound", 1.3), ("tokens_per_second", 120.0)):
            yield Score("speculation_draft", plan, "select", metric, value)
    yield Score("speculation_draft", "0 11", "select", "chosen", 1.0)
    if not generated:
        return
    counts = {"tokens": 96, "rounds": 60, "draft_passes": 80, "accepted": 36, "layer_passes": 880}
    for metric, value in {**counts, "equal": 3, "tie": 1, "other": 0}.items():
        yield Score("speculation", "0 11", "all", metric, float(value))
    yield Score("speculation", "0 11", "all", "bound", 1.309, 1.2, 1.4)
    yield Score("speculation", "0 11", "all", "acceptance", 0.45, 0.4, 0.5)
    for way, rate in (("generate", 90.0), ("speculative", 99.0), ("assistant", 80.0)):
        yield Score("speculation", "0 11", way, "tokens_per_second", rate, rate - 5, rate + 5)
        if way != "speculative":
            yield Score("speculation", "0 11", way, "ratio", 99 / rate, 1.0, 1.3)


def test_the_sentences_say_what_was_expected_and_what_was_found() -> None:
    said = "\n".join(speculation_lines(SpeculationScores.of(rows())))
    assert "draft 0 11: the whole model's arg-max at 50.0 % of the tokens; expected: drafts of 2, 1.30 x" in said
    assert "in 60 rounds with 80 draft passes, of which 45.0 % [40.0, 50.0] were kept" in said
    assert "layer passes: 880, 1.31 [1.20, 1.40] x fewer than plain decoding" in said
    assert "speculative is 1.10 [1.00, 1.30] x generate, 1.24 [1.00, 1.30] x assistant" in said
    assert "equal to generate: 3 of 4 texts, 1 up to a tie" in said


def test_the_drafts_that_were_compared_stand_in_a_table() -> None:
    table = candidate_table(SpeculationScores.of(rows()))
    assert [row[0] for row in table.body] == ["0 11", "0-10"]
    assert table.body[1][1:] == ("90.0 %", "2", "1.30", "120.0")


def test_the_page_is_whole_before_and_after_generation() -> None:
    manifest = {"model": "m", "seed": 0}
    for generated in (False, True):
        page = render(ReportData(manifest, (), tuple(rows(generated=generated)), ()))
        assert "What drafts gain" in page
        assert ("fewer layer passes" in page) is generated
        assert ("Nothing was generated yet" in page) is not generated
