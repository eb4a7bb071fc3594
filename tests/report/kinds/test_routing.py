"""A routing: no router is called better than its rows say, and no plan without prompts has a line."""

from __future__ import annotations

from dataclasses import replace

import pytest

from layerwise.report import render, terminal_lines
from layerwise.report.kinds.routing import ROUTING_KIND, shares
from tools.golden.outputs import stored

RUN = stored("routing-planted")


@pytest.mark.parametrize(
    ("decision", "low", "words"),
    [
        ("above", 0.06, "above the best fixed plan, +0.080"),
        ("equivalent", 0.06, "alike within the margin, +0.080"),
        ("unresolved", 0.06, "above the best fixed plan, but not distinguished from its own plans dealt out at random"),
        ("unresolved", -0.06, "not resolvable, +0.080"),
    ],
)
def test_the_answer_is_the_decision_and_no_more(decision: str, low: float, words: str) -> None:
    rows = (
        replace(row, metric=decision, low=low) if row.measure == "route_verdict" and row.arm == "router" else row
        for row in RUN.scores
    )
    answer = ROUTING_KIND.answer(replace(RUN, scores=tuple(rows)))
    assert answer.startswith(f"skills: {words}")
    assert f"Fitted to skills, asked lambada: {words}" in answer


def test_a_plan_without_prompts_has_no_line() -> None:
    assert shares(RUN).where(task="skills").axis("plan") == ("0 1 3-11", "0-11")


@pytest.mark.parametrize("measure", ["route_time", "route"])
def test_a_routing_that_was_stopped_says_so(measure: str) -> None:
    left = replace(RUN, scores=tuple(RUN.rows.where(measure=measure)))
    assert "no verdict was given yet" in render(left)
    assert list(terminal_lines(ROUTING_KIND, left)) == []
