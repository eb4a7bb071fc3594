"""Which plans an ordinary checkpoint can hold: whole layers, one after another."""

from __future__ import annotations

from layerwise.errors import PlanError
from layerwise.plan import Plan


def refuse_inexpressible(plan: Plan) -> None:
    """Raise `PlanError` for a plan with halves or groups, which no ordinary checkpoint holds."""
    steps = plan.steps()
    if plan.has_sublayers():
        half = next(step.name for step in steps if step.sublayer is not None)
        raise PlanError(
            f"a checkpoint holds whole layers, and the plan runs {half}: run it in place with stack.under, write it "
            "with --compact, or leave the halves out"
        )
    if any(step.opens or step.closes for step in steps):
        flat = " ".join(step.name for step in steps)
        raise PlanError(
            "a checkpoint runs its layers one after another, and the plan has a group: run it in place with "
            f"stack.under, write it with --compact, or write its layers in turn, as in {Plan.parse(flat)}"
        )
