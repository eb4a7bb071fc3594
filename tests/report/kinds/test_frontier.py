"""A frontier: the answer is what the verdicts say, and what is not resolvable is named with what would resolve it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from layerwise.report import ReportData, terminal_lines
from layerwise.report.kinds.frontier import ARMS, FRONTIER_KIND, SLOTS, every_verdict, headline
from layerwise.report.marks import Mark
from layerwise.results.rows import Score
from tools.golden.outputs import stored

RUN = stored("frontier-planted")
DECODE = "decode, batch 1, context 8"
IN_TURN, FUSED = "0 (1|2) 3-5", "0 (1|2) 3-5, fused"


def decided(fused: str, in_turn: str = "beaten") -> ReportData:
    metrics = {"best": fused, "beaten": in_turn}
    return replace(RUN, scores=tuple(replace(row, metric=metrics.get(row.metric, row.metric)) for row in RUN.scores))


@pytest.mark.parametrize(
    ("fused", "in_turn", "answer"),
    [
        ("best", "beaten", "parallel layers are the best way at 1 of 2 points; beaten at 1."),
        ("beaten", "beaten", "no. Parallel layers are beaten at every one of 2 points."),
        ("not_resolvable", "beaten", "the best way at none of 2 points; beaten at 1, not resolvable at 1."),
        ("not_resolvable", "not_resolvable", "not resolvable at any of 2 points."),
        ("best", "best", "parallel layers are the best way at 2 of 2 points."),
    ],
)
def test_the_answer_is_what_the_verdicts_say(fused: str, in_turn: str, answer: str) -> None:
    text = headline(decided(fused, in_turn), DECODE)
    assert text.startswith(f"{DECODE}: ")
    assert text.endswith(answer)


def test_what_is_not_resolvable_is_named_with_what_would_resolve_it() -> None:
    """Text where the difference is small; rounds where a rival loses less and might be as quick; else other plans."""
    unresolved = decided("not_resolvable")

    def of(rival: str, value: float, p: float) -> str:
        changed = Score(
            "frontier",
            "above_closest",
            value,
            value - 0.05,
            value + 0.05,
            p / 2,
            p_adjusted=p,
            mde=0.1,
            tokens=1000,
            plan=FUSED,
            condition=DECODE,
            against=rival,
        )
        rows = (changed if row.key[:-1] == changed.key[:-1] else row for row in unresolved.scores)
        return list(every_verdict(replace(unresolved, scores=tuple(rows))))[1]

    assert "a difference of this size would show in about 25,000 tokens" in of("0 2-5", -0.02, 0.3)
    assert of("0-5", 0.3, 1.0).endswith(
        "0-5 loses less, and its time cannot be told from this one's: more rounds would tell, or a quieter machine."
    )
    alone = tuple(row for row in unresolved.scores if row.plan != FUSED or not row.metric.startswith("above"))
    assert "nothing else that was timed is as quick" in list(every_verdict(replace(unresolved, scores=alone)))[1]
    assert "- not resolvable: 1 for want of text." in terminal_lines(FRONTIER_KIND, unresolved)


def test_every_arm_has_a_colour_of_its_own_and_a_line_through_what_no_quicker_point_matches() -> None:
    mark = FRONTIER_KIND.sections[0].parts_of(RUN)[0]
    assert isinstance(mark, Mark)
    (picture,) = mark.pictures(RUN)
    traces = picture.variants[0,].traces
    dots = [trace for trace in traces if trace["mode"] == "markers"]
    assert len({(trace["marker"]["color"], *trace["marker"]["symbol"]) for trace in dots}) == len(dots) == len(ARMS)
    assert [trace["x"] for trace in traces if trace["mode"] == "lines"] == [[5.0, 5.1]]
    assert SLOTS.keys() == ARMS.keys()
