"""The expected cost of missing layers, looked up in the run of a sweep."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from layerwise.errors import SwarmError
from layerwise.plan.plan import Plan
from layerwise.results.run import Run
from layerwise.results.vocabulary import DELTA, EFFECT
from layerwise.swarm.answer import COMPLETE, UNKNOWN, Expected

POOLED = "all"
"""The task of the effects over all texts, where there are several."""


@dataclass(frozen=True, slots=True, eq=False)
class LossEstimate:
    """The measured cost of plans of a model of `depth` layers, by the text of the plan."""

    depth: int
    plans: Mapping[str, Expected]

    def expected(self, missing: Collection[int]) -> Expected:
        """Return what the model costs without these layers; unknown unless this very set was measured."""
        if not missing:
            return COMPLETE
        kept = [layer for layer in range(self.depth) if layer not in missing]
        return self.of_plan(str(Plan.of(kept))) if kept else UNKNOWN

    def of_plan(self, plan: str) -> Expected:
        """Return what a plan costs; unknown unless this very plan was measured."""
        return self.plans.get(plan, UNKNOWN)


def estimate_of_run(folder: Path | str) -> LossEstimate:
    """Read the effects of all plans (over all tasks) from a sweep's run directory. Raises `SwarmError` without any."""
    with Run.open(folder) as run:
        rows = run.store.scores(EFFECT, metric=DELTA)
        identity = [each.plan for each in run.store.plans() if each.family == "identity"]
    if not rows or not identity:
        raise SwarmError(
            f"{folder} holds no effects of plans other than the trained order: resume it until it is complete, or run "
            "layerwise sweep MODEL --families leave_one_out,every_window"
        )
    tasks = {row.task for row in rows}
    chosen = POOLED if POOLED in tasks else min(tasks)
    plans = {row.plan or "": Expected(row.value, row.low, row.high, "measured") for row in rows if row.task == chosen}
    return LossEstimate(len(Plan.parse(identity[0]).order()), plans)
