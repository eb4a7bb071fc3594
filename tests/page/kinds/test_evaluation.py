"""The page of an evaluation: minimal pairs, fine-tuned tasks, and scores under a plan."""

from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from layerwise.page import ReportData, render
from layerwise.page.render import build_chapters
from layerwise.plan import Member, Plan
from layerwise.plan.families import leave_one_out
from layerwise.results.rows import PlanRecord, Score
from layerwise.studies.evaluate import page
from layerwise.studies.evaluate.page import PLANS, FineTuneResults
from tools.golden.stored_run import read_run


@cache
def tuned() -> ReportData:
    return read_run(Path(__file__).parents[2] / "golden" / "fine-tuning-planted")


@pytest.fixture
def own() -> FineTuneResults:
    (only,) = FineTuneResults.list_all(tuned())
    return only


def test_overlapping_intervals_are_inconclusive() -> None:
    wide = (
        row if row.low is None else replace(row, low=row.value - 0.5, high=row.value + 0.5) for row in tuned().scores
    )
    data = replace(tuned(), scores=tuple(wide))
    (finding,) = page.plan_findings(data)
    assert finding.verdict == "inconclusive"
    assert finding.answer.startswith("Inconclusive: looped parallel ")
    assert not list(page.EVALUATION.following(data)), "no plan is better than another"


def test_plans_of_one_size_have_a_curve() -> None:
    members = (Member(Plan.identity(8), "identity", "identity", 0), *leave_one_out(8))
    records = tuple(
        PlanRecord(str(each.plan), each.family, each.strategy, each.affected, None, 8, 8, 8, 8) for each in members
    )
    rows = [
        Score("glue", "accuracy", 0.5 + at / 100, task="rte", variant="bert", plan=str(each.plan) if at else None)
        for at, each in enumerate(members)
    ]
    data = ReportData({"depth": 8}, records, tuple(rows))
    rows = next(FineTuneResults.list_all(data)).curves(("rte", "accuracy", None))
    assert len(rows.axis("plan")) == 8
    assert "rte" in render(data)


def test_a_run_without_plans_has_no_section_of_plans() -> None:
    data = replace(tuned(), plans=(), notes=(), scores=tuple(row for row in tuned().scores if row.plan is None))
    assert not list(FineTuneResults.list_all(data))
    assert PLANS not in {chapter.anchor for chapter in build_chapters(data)}
    assert page.EVALUATION.answer(data).startswith("GLUE, ")
