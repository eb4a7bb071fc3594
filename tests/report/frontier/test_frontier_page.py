"""The page of a frontier: the answer is what the verdicts say, and every point stands in the picture."""

from __future__ import annotations

from dataclasses import replace

import plotly.graph_objects as go
import pytest

from layerwise.report import Evidence, FrontierScores, ReportData, frontier_lines, render
from layerwise.report.frontier.chapter import FRONTIERS, SLOTS
from layerwise.report.frontier.lookup import ARMS
from layerwise.report.frontier.tables import frontier_table, headline, verdict_sentences
from layerwise.report.page.groups import written
from layerwise.results.rows import Note, Score

PREFILL, DECODE = "prefill, batch 1, context 8", "decode, batch 1, context 8"
POINTS = {
    "0-5": ("identity: as trained", 0, 0.0, 6.0),
    "1-5": ("skip: window", 1, 0.3, 5.0),
    "0 2-5": ("skip: set", 1, 0.2, 5.1),
    "2-5": ("skip: set", 2, 0.25, 5.2),
    "0 (1|2) 3-5": ("parallel: pairs", 2, 0.1, 6.0),
    "0 (1|2) 3-5, fused": ("parallel: pairs, fused", 2, 0.1, 5.0),
    "0*2 1-5": ("looped: repeat", 1, 0.05, 7.0),
    "healed a<b": ("healed: checkpoint", 2, 0.1, 4.0),
}
DRAFT = ("draft 0-2", "speculation: draft", 3, 0.0, 6.5)


def compared(name: str, setting: str, rival: str, metric: str, value: float, p: float, width: float = 0.05) -> Score:
    return Score("frontier", name, f"{setting}; {rival}", metric, value, value - width, value + width, p / 2, p, 0.1,
                 40, 1000)  # fmt: skip


def rows(verdict: str = "best", in_turn: str = "beaten") -> list[Score]:
    made = []
    for name, (arm, size, loss, ms) in {**POINTS, DRAFT[0]: DRAFT[1:]}.items():
        made.append(Score("frontier", name, arm, "arm", float(size)))
        made.append(Score("frontier", name, "report", "delta_nll", loss, loss - 0.04, loss + 0.04))
        made.append(Score("frontier", name, "choose", "delta_nll", loss + 0.01))
        for setting in (PREFILL, DECODE):
            if setting == DECODE or name != DRAFT[0]:
                made.append(Score.of("time", "ms", ms, ms - 0.1, ms + 0.1, plan=name, condition=setting))
                made.append(Score.of("time", "ratio", ms / 6, ms / 6, ms / 6, plan=name, condition=setting))
    for setting in (PREFILL, DECODE):
        made += [
            compared("0 (1|2) 3-5", setting, "0-5", "above_rival", 0.1, 0.01),
            compared("0 (1|2) 3-5", setting, "0-5", "above_closest", 0.1, 1.0),
            Score("frontier", "0 (1|2) 3-5", setting, in_turn, 1.0),
            compared("0 (1|2) 3-5, fused", setting, "1-5", "above_rival", -0.02, 1.0),
            compared("0 (1|2) 3-5, fused", setting, "0 2-5", "above_closest", -0.1, 0.02),
            Score("frontier", "0 (1|2) 3-5, fused", setting, verdict, 1.0),
        ]
    return made


def data(scores: list[Score]) -> ReportData:
    notes = (Note("frontier", "no drafts: it keeps no cache"),)
    return ReportData(
        {"model": "tiny", "corpus": "texts", "documents": 40, "tokens": 1000}, (), tuple(scores), notes=notes
    )


@pytest.mark.parametrize(
    ("fused", "in_turn", "answer"),
    [
        ("best", "beaten", "parallel layers are the best way at 1 of 2 points; beaten at 1"),
        ("beaten", "beaten", "no. Parallel layers are beaten at every one of 2 points"),
        ("not_resolvable", "beaten", "the best way at none of 2 points; beaten at 1, not resolvable at 1"),
        ("not_resolvable", "not_resolvable", "not resolvable at any of 2 points"),
        ("best", "best", "parallel layers are the best way at 2 of 2 points"),
    ],
)
def test_the_answer_is_what_the_verdicts_say(fused: str, in_turn: str, answer: str) -> None:
    said = headline(FrontierScores.of(rows(fused, in_turn)), DECODE)
    assert said.startswith(f"{DECODE}: ")
    assert answer in said


def test_every_parallel_plan_stands_beside_its_rival() -> None:
    said = list(verdict_sentences(FrontierScores.of(rows()), DECODE))
    assert said == [
        "0 (1|2) 3-5: beaten by 0-5 (6.00 ms, here 6.00): +0.100 [+0.050, +0.150] nats above it, corrected p 0.010",
        "0 (1|2) 3-5, fused: best; the closest that is as quick is 0 2-5 (5.10 ms, here 5.00): −0.100 [−0.150, −0.050] "
        "nats above it, corrected p 0.020",
    ]


def test_what_is_not_resolvable_is_said_with_what_would_resolve_it() -> None:
    """Text where the difference is small; rounds where a rival loses less and might be as quick; else other plans."""
    name = "0 (1|2) 3-5, fused"
    open_rows = rows("not_resolvable")

    def of(score: Score) -> str:
        key = (name, DECODE, score.metric)
        changed = [
            score if (row.subject, row.task.partition(";")[0], row.metric) == key else row for row in open_rows
        ]  # fmt: skip
        return list(verdict_sentences(FrontierScores.of(changed), DECODE))[1]

    by_text = of(compared(name, DECODE, "0 2-5", "above_closest", -0.02, 0.3))
    assert "a difference of this size would show in about 25,000 tokens" in by_text
    by_rounds = of(compared(name, DECODE, "0-5", "above_closest", 0.3, 1.0))
    assert by_rounds.endswith("0-5 loses less, and its time cannot be told from this one's: more rounds would tell, or "
                              "a quieter machine")  # fmt: skip
    alone = [row for row in open_rows if row.subject != name or not row.metric.startswith("above")]
    assert "nothing else that was timed is as quick" in list(verdict_sentences(FrontierScores.of(alone), DECODE))[1]


def test_the_line_of_an_arm_goes_through_what_no_quicker_point_of_it_matches() -> None:
    run = FrontierScores.of(rows())
    assert [point.name for point, _ in run.pareto(DECODE, "skip")] == ["1-5", "0 2-5"]


def test_the_table_has_everything_that_was_timed_the_quickest_first() -> None:
    run = FrontierScores.of(rows())
    table = frontier_table(run, DECODE)
    assert next(row[1] for row in table.body) == "healed a<b"
    assert {row[1] for row in table.body} == {*POINTS, DRAFT[0]}
    assert {row[1] for row in frontier_table(run, PREFILL).body} == set(POINTS)
    verdicts = {row[1]: row[4] for row in table.body}
    assert verdicts["0 (1|2) 3-5"] == "beaten by 0-5"
    assert verdicts["0 (1|2) 3-5, fused"] == "best, next 0 2-5"
    assert verdicts["0-5"] == "–"


def test_the_picture_shows_every_arm_in_a_colour_of_its_own_with_both_intervals() -> None:
    evidence = Evidence.of(data(rows()))
    chapter = next(each for each in written(evidence) if each.anchor == "frontier")
    (picture,) = chapter.pictures
    assert len(picture.variants) == 2
    for figure in picture.variants.values():
        go.Figure(figure.payload())
    dots = [trace for trace in picture.variants[0,].traces if trace["mode"] == "markers"]
    assert len(dots) == 7
    assert len({trace["marker"]["color"] for trace in dots}) == 7
    assert len({trace["marker"]["symbol"] for trace in dots}) == 7
    for trace in dots:
        assert min(trace["error_x"]["array"]) == pytest.approx(0.1)
        assert min(trace["error_y"]["arrayminus"]) == pytest.approx(0.04)
    assert SLOTS.keys() == ARMS.keys()


def test_names_are_escaped_and_notes_are_kept() -> None:
    page = render(data(rows()))
    assert "healed a<b" not in page.partition('id="report-data"')[0]
    assert "No drafts: it keeps no cache." in page


def test_a_run_that_was_stopped_says_so() -> None:
    evidence = Evidence.of(data([Score("frontier_draft", "0-2", "choose", "agreement", 0.5)]))
    assert FRONTIERS.present(evidence)
    assert "not everything was measured yet" in (FRONTIERS.unfinished(evidence) or "")
    assert render(evidence.data)


def test_the_terminal_has_the_answer_the_best_plans_and_the_table() -> None:
    lines = frontier_lines(FrontierScores.of(rows()))
    assert lines[0].startswith(DECODE)
    assert lines[1].startswith("- 0 (1|2) 3-5, fused: best")
    assert sum(line.startswith("arm ") for line in lines) == 2
    few = frontier_lines(FrontierScores.of(rows("not_resolvable")))
    assert few[1] == "- not resolvable: 1 for want of text"


def test_intervals_may_be_absent() -> None:
    bare = [replace(row, low=None, high=None) if row.metric == "delta_nll" else row for row in rows()]
    assert render(data(bare))
