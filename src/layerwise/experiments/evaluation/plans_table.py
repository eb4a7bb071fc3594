"""Scores of models under plans as a table for a terminal."""

from __future__ import annotations

from layerwise.report.finetuned.lookup import FineTunedPlans
from layerwise.report.finetuned.tables import plan_rows
from layerwise.results import Run


def plans_table(run: Run, suite: str) -> str:
    """Every strategy at each number of affected layers, task by task; empty where no plan was."""
    rows = FineTunedPlans.of(run.store.scores(suite), run.store.plans())
    lines = []
    for arm in rows.arms:
        lines += [f"{suite} under plans, active in fine-tuning and in the test, {arm}:"]
        lines += [f"  {line}" for line in plan_rows(rows, suite, arm).lines()]
    return "\n".join(lines)
