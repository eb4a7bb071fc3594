"""The page of a routing: every task set and score has its picture, and no router is called better than its rows say."""

from __future__ import annotations

import plotly.graph_objects as go
import pytest

from layerwise.report import Evidence, ReportData, RoutingScores, render, routing_lines
from layerwise.report.page.groups import written
from layerwise.report.routing.chapter import ROUTING
from layerwise.report.routing.lookup import ARMS
from layerwise.report.routing.tables import arm_table, share_table, verdict_table
from layerwise.results.rows import Score

SETS = ("skills", "lambada")
PLANS = {"0-3 8-11": 8.0, "0 1 3-11": 11.0, "0-11": 12.0}


def row(measure: str, subject: str, task: str, metric: str, value: float, reach: float = 0.02, **more: float) -> Score:
    return Score(measure, subject, task, metric, value, value - reach, value + reach, documents=300, **more)  # type: ignore[arg-type]


def rows(decisions: tuple[str, str, str] = ("above", "unresolved", "equivalent")) -> list[Score]:
    pairs = ("skills to lambada",)
    made = [Score("route_verdict", "all", "accuracy", "margin", 0.02),
            Score("route_verdict", "all", "accuracy", "limit", 11.0)]  # fmt: skip
    for task, decision in zip((*SETS, *pairs), decisions, strict=True):
        made.append(row("route_verdict", "router", task, decision, 0.08, p_adjusted=0.0004, mde=0.03))
        for kind in ("accuracy", "nats"):
            made.append(row("route", "router", task, f"{kind}_layers", 10.87))
            for at, arm in enumerate(ARMS):
                made.append(row("route", arm, task, kind, 0.9 - 0.01 * at))
                if arm != "router" and not arm.startswith("oracle"):
                    made.append(row("route", arm, task, f"{kind}_gain", 0.01 * at, p=0.2, mde=0.03))
    for task in SETS:
        for number in range(5):
            made += [row("route_curve", arm, task, f"accuracy/{number}", 0.5 + 0.1 * number) for arm in ARMS]
            made.append(row("route_curve", "router", task, f"accuracy_layers/{number}", 8.0 + number))
        for at, (plan, layers) in enumerate(PLANS.items()):
            made.append(row("route_plan", plan, task, "accuracy", 0.3 * at))
            made.append(Score("route_plan", plan, task, "layers", layers))
            made.append(Score("route_share", plan, task, "arithmetic", (0.0, 0.25, 0.75)[at]))
    made += [row("route_time", "router", "all", "ms", 0.5), Score("route_time", "layer", "all", "ms", 0.25),
             Score("route_time", "router", "all", "layers", 2.0)]  # fmt: skip
    return made


def data(scores: list[Score]) -> ReportData:
    manifest = {"model": "tiny", "corpus": "skills; lambada", "documents": 600, "tokens": 4000, "depth": 12}
    return ReportData(manifest, (), tuple(scores))


def test_the_sentences_say_what_was_decided_and_no_more() -> None:
    text = "\n".join(routing_lines(RoutingScores.of(rows())))
    assert "Choosing takes 0.500 [0.480, 0.520] ms, which is 2.00 layers of 0.250 ms" in text
    assert "skills: above the best fixed plan. +0.080 [+0.060, +0.100] accuracy at 10.87 mean layers" in text
    assert "(p <0.001; it would have seen 0.0300)" in text
    assert "lambada: not resolvable." in text
    assert "Fitted to skills, asked lambada: alike within the margin." in text


def test_every_arm_has_its_line_and_no_plan_without_prompts_does() -> None:
    run = RoutingScores.of(rows())
    assert [line[0] for line in arm_table(run, "skills").body] == list(ARMS.values())
    assert [line[0] for line in share_table(run, "skills").body] == ["0 1 3-11", "0-11"]
    assert [line[:2] for line in verdict_table(run).body] == [
        ("skills", "skills"), ("lambada", "lambada"), ("skills", "lambada"),
    ]  # fmt: skip


def test_the_page_has_a_picture_of_every_task_set_that_plotly_knows() -> None:
    evidence = Evidence.of(data(rows()))
    assert ROUTING.present(evidence)
    (picture,) = (picture for chapter in written(evidence) for picture in chapter.pictures)
    assert set(picture.variants) == {(0, 0), (1, 0)}
    for figure in picture.variants.values():
        go.Figure(figure.payload())
        assert {trace["name"] for trace in figure.traces} >= {"router", "best fixed plans", "oracle", "judged here"}
    html = render(data(rows()))
    assert "above the best fixed plan" in html
    assert "0 1 3-11" in html


@pytest.mark.parametrize("measure", ["route_time", "route"])
def test_a_routing_that_was_stopped_says_so(measure: str) -> None:
    left = [each for each in rows() if each.measure == measure]
    assert "no verdict was given yet" in (ROUTING.unfinished(Evidence.of(data(left))) or "")
    assert routing_lines(RoutingScores.of(left)) == []
    render(data(left))
