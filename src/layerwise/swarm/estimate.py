"""Expected loss increase from missing layers, read from the run directory of a sweep."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from layerwise.errors import SwarmError
from layerwise.plan.plan import Plan
from layerwise.results.run import Run
from layerwise.results.vocabulary import DELTA, EFFECT
from layerwise.swarm.answer import COMPLETE, UNKNOWN, ExpectedCost

POOLED = "all"
"""The `task` of effects that are pooled over several texts."""


@dataclass(frozen=True, slots=True, eq=False)
class LossEstimate:
    """Measured loss increase of each plan of a model with `depth` layers, keyed by the text of the plan."""

    depth: int
    plans: Mapping[str, ExpectedCost]

    def expected(self, missing: Collection[int]) -> ExpectedCost:
        """Return the loss increase if these layers are missing, or `UNKNOWN` if this exact set was not measured."""
        if not missing:
            return COMPLETE
        kept = [layer for layer in range(self.depth) if layer not in missing]
        return self.for_plan(str(Plan.of(kept))) if kept else UNKNOWN

    def for_plan(self, plan: str) -> ExpectedCost:
        """Return the loss increase of a plan, or `UNKNOWN` if this exact plan was not measured."""
        return self.plans.get(plan, UNKNOWN)


def read_loss_estimate(folder: Path | str) -> LossEstimate:
    """Read the loss increase of every plan from a sweep's run directory. Raises `SwarmError` if it has none."""
    with Run.open(folder) as run:
        rows = run.store.scores(EFFECT, metric=DELTA)
        identity = [each.plan for each in run.store.plans() if each.family == "identity"]
    if not rows or not identity:
        raise SwarmError(
            f"{folder} must be the run directory of a sweep, but it contains no measured plans. Resume it until it is "
            "complete, or run `layerwise sweep MODEL --families leave_one_out,every_window`."
        )
    tasks = {row.task for row in rows}
    chosen = POOLED if POOLED in tasks else min(tasks)
    plans = {
        row.plan or "": ExpectedCost(row.value, row.low, row.high, "measured") for row in rows if row.task == chosen
    }
    return LossEstimate(len(Plan.parse(identity[0]).order()), plans)
