"""The report of models under plans: curves by strategy, the table, the finding, and no sweep that there was none of."""

from __future__ import annotations

from dataclasses import replace

import pytest
from layerwise.plan.subject import under_plan
from layerwise.report.finetuned.findings import finetuned_findings
from layerwise.report.finetuned.lookup import PLANS, FineTunedPlans
from layerwise.report.finetuned.tables import columns, plan_rows, strategy_curves

from layerwise.experiments.summary import summary
from layerwise.plan import Member, Plan
from layerwise.plan.families import leave_one_out
from layerwise.plan.member import GIVEN
from layerwise.plan.painters import painters
from layerwise.report import Evidence, ReportData, markdown, render
from layerwise.report.page.groups import written
from layerwise.results.rows import Note, PlanRecord, Score

DEPTH = 8
TASKS = {"cola": ("mcc", 0.5, 0.0), "rte": ("accuracy", 0.7, 0.5)}
LOSS = {"skip": 0.1, "reverse": 0.06, "random": 0.05, "parallel": 0.08, "looped_parallel": 0.02, "middle_repeat": 0.12}
GIVEN_PLAN = Plan.parse("0-3 3-7")
MEMBERS = (
    Member(Plan.identity(DEPTH), "identity", "identity", 0),
    *painters(DEPTH, seeds=(0, 1)),
    Member(GIVEN_PLAN, GIVEN, GIVEN, 9),
)


def _record(member: Member) -> PlanRecord:
    return PlanRecord(str(member.plan), member.family, member.strategy, member.affected, member.draw, 8, 8, 8, 8)


def _left(member: Member) -> float:
    """What a plan leaves on the scale from chance to the model as trained."""
    return 1.0 - LOSS.get(member.strategy, 0.3) * (member.affected - 1) / 2


def _rows(arm: str = "bert", reach: float = 0.01) -> list[Score]:
    members = {str(member.plan): member for member in reversed(MEMBERS)}
    rows = []
    for plan, member in members.items():
        left = 1.0 if plan == str(Plan.identity(DEPTH)) else _left(member)
        for level in (f"{arm}/0.0", f"{arm}/0", arm):
            subject = level if left == 1.0 and member.family == "identity" else under_plan(plan, level)
            values = []
            for task, (metric, trained, chance) in TASKS.items():
                value = chance + left * (trained - chance)
                values.append(value)
                rows.append(Score("glue", subject, task, metric, value, value - reach, value + reach, documents=100))
                rows.append(Score("glue", subject, task, f"{metric}@chance", chance, documents=100))
                if subject != level:
                    rows.append(Score("glue", subject, task, f"normalised_{metric}", left, left - reach, left + reach))
            mean = sum(values) / 2
            rows.append(Score("glue", subject, "all", "mean", mean, mean - reach, mean + reach))
            rows.append(Score("glue", subject, "all", "mean@chance", 0.25))
            if subject != level:
                rows += [
                    Score("glue", subject, "all", f"normalised_{how}", left, left - reach, left + reach)
                    for how in ("mean", "median")
                ]
    return rows


def _data(*arms: str, reach: float = 0.01) -> ReportData:
    manifest: dict[str, object] = {"model": "bert", "depth": DEPTH, "seed": 0, "corpus": "cola; rte"}
    rows = [row for arm in arms or ("bert",) for row in _rows(arm, reach)]
    notes = (Note("glue", "all: the mean is over cola (mcc), rte (accuracy)."), Note(PLANS, "1 plan of x left out"))
    return ReportData(manifest, tuple(_record(member) for member in MEMBERS), tuple(rows), notes=notes)


def _found(data: ReportData) -> FineTunedPlans:
    return FineTunedPlans.of(data.scores, data.plans)


def test_rows_are_looked_up_by_arm_plan_and_task() -> None:
    found = _found(_data())
    assert (found.arms, found.suites, found.trained) == (("bert",), ("glue",), "0-7")
    assert found.tasks("glue") == ("cola", "rte", "all")
    assert columns(found, "glue", "bert") == (
        ("cola", "mcc"), ("rte", "accuracy"), ("all", "mean"), ("all", "normalised_mean"), ("all", "normalised_median"),
    )  # fmt: skip
    skipped = found.score("glue", "bert", "0 1 7", "rte", "accuracy")
    assert skipped is not None
    assert skipped.value == pytest.approx(0.5 + 0.2 * 0.8)
    trained = found.score("glue", "bert", "0-7", "all", "normalised_mean")
    assert trained is not None
    assert trained.value == 1.0
    assert found.level("glue", "bert", "rte", "accuracy") == (pytest.approx(0.7), 0.5)


def test_the_main_metric_is_none_from_chance_in_whichever_order_rows_are_stored() -> None:
    data = _data()
    turned = replace(data, scores=tuple(sorted(data.scores, key=lambda row: not row.metric.startswith("normalised_"))))
    assert columns(_found(turned), "glue", "bert") == columns(_found(data), "glue", "bert")


def test_a_curve_a_strategy_by_the_layers_affected() -> None:
    curves = strategy_curves(_found(_data()), "glue", "bert", "painters", ("all", "normalised_mean"))
    assert [curve.strategy for curve in curves] == list(dict.fromkeys(member.strategy for member in MEMBERS[1:-1]))
    for curve in curves:
        assert [point.affected for point in curve.points] == [1, 3, 5, 7]
        if curve.strategy != "looped_parallel":  # of one layer that is a repeat
            assert curve.points[0].value == pytest.approx(1.0)
    (skip,) = (curve for curve in curves if curve.strategy == "skip")
    assert [point.value for point in skip.points] == pytest.approx([1.0, 0.9, 0.8, 0.7])


def test_the_table_has_the_model_as_trained_the_given_plans_and_every_strategy() -> None:
    table = plan_rows(_found(_data()), "glue", "bert")
    assert table.head[:4] == ("plan", "layers affected", "plans", "cola, mcc")
    assert table.head[-1] == "normalised median"
    by_name = {row[:2]: row for row in table.body}
    assert by_name["as trained", "0"][3] == "0.500 [0.490, 0.510]"
    assert by_name["as trained", "0"][-1] == "1.000"
    assert ("0-3 3-7", "–") in by_name
    assert by_name["random order", "5"][2] == "2"
    assert by_name["skip", "5"][-2].startswith("0.800 ")


def test_the_finding_ranks_the_strategies_at_half_the_depth() -> None:
    (finding,) = finetuned_findings(_found(_data()), DEPTH)
    assert finding.question == ("What is left of normalised mean of bert fine-tuned with 3 of 8 layers affected?")
    assert finding.state == "resolved"
    assert finding.text.startswith("Looped parallel leaves more than middle repeat: looped parallel 0.98")
    (finding,) = finetuned_findings(_found(_data(reach=0.5)), DEPTH)
    assert finding.state == "unresolved"
    assert finding.text.startswith("Not resolvable: looped parallel ")


def test_the_page_has_one_chapter_of_plans_and_no_sweep() -> None:
    data = _data("ltg", "elc")
    chapters = {chapter.anchor: chapter for chapter in written(Evidence.of(data))}
    assert list(chapters) == ["glue", PLANS, "provenance"]
    (main, *small) = chapters[PLANS].pictures
    assert [choice.question for choice in main.choices] == ["Arm", "Family", "Score"]
    assert main.choices[2].options[:3] == ("mean", "normalised mean", "normalised median")
    assert len(small) == 2
    html = render(data)
    assert "1 plan of x left out." in html
    assert "have no effect yet" not in html
    assert "0-3 3-7" in html
    assert "## GLUE under plans, elc" in markdown(data)
    assert "- What is left of normalised mean of ltg" in summary(data)


def test_a_run_that_was_stopped_draws_what_there_is() -> None:
    data = _data()
    kept = tuple(
        row for row in data.scores if row.task == "cola" and "normalised" not in row.metric and "0 7" not in row.subject
    )
    page = render(replace(data, scores=kept))
    assert "What the models can be taught under a plan" in page
    found = FineTunedPlans.of(kept, data.plans)
    assert columns(found, "glue", "bert") == (("cola", "mcc"),)


def test_plans_of_one_size_have_a_curve_too() -> None:
    members = (MEMBERS[0], *leave_one_out(DEPTH))
    rows = [
        Score("glue", under_plan(None if at == 0 else str(member.plan), "bert"), "rte", "accuracy", 0.5 + at / 100)
        for at, member in enumerate(members)
    ]
    found = FineTunedPlans.of(rows, [_record(member) for member in members])
    (curve,) = strategy_curves(found, "glue", "bert", "leave_one_out", ("rte", "accuracy"))
    assert len(curve.points[0].records) == DEPTH
    assert "rte" in render(ReportData({"depth": DEPTH}, tuple(map(_record, members)), tuple(rows)))


def test_a_run_without_plans_has_no_such_chapter() -> None:
    rows = tuple(row for row in _rows() if " of " not in row.subject)
    assert not _found(ReportData({}, (), rows)).arms
    evidence = Evidence.of(ReportData({}, (), rows))
    assert PLANS not in {chapter.anchor for chapter in written(evidence)}
