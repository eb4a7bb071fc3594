"""`layerwise verify`: check a model under a plan."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from layerwise.plan import Plan
from layerwise.runner.experiment import Action
from layerwise.runner.option import option
from layerwise.runner.options.common import ModelOptions
from layerwise.runner.options.plans import given_plan
from layerwise.runner.reporter import Reporter, waiting

WORDS = {True: "holds", False: "FAILS", None: "n/a"}


@dataclass(frozen=True, kw_only=True)
class Verification(ModelOptions, Action):
    """Check that a model under a plan computes what the plan says.

    Cached decoding is part of it. The exit code is 1 if a law does not hold.
    """

    VERB: ClassVar = "verify"
    EXAMPLES: ClassVar = (
        'demo --plan "0-3 (4|5|6)*2 7-11"',
        'HuggingFaceTB/SmolLM2-135M --plan "0-13 18-29"',
    )

    plan: str | None = option(None, "Plan that runs; by default the model as trained.", metavar="PLAN", empty=True)

    def check(self) -> None:
        if self.plan is not None:
            given_plan(self.plan)

    def act(self, reporter: Reporter) -> int:
        """Report which laws hold; returns 1 if one does not."""
        from layerwise.runner.opening import open_named

        stack = open_named(self, reporter)
        from layerwise.results.identity import model_name
        from layerwise.stack import verify

        plan = Plan.parse(self.plan) if self.plan is not None else Plan.identity(stack.depth)
        with waiting(reporter, f"verifying {plan}"):
            laws = verify(stack, plan, progress=lambda share: reporter.progress(f"verifying {plan}", share))
        reporter.result(f"{model_name(stack.source.name)} under {plan}")
        width = max(len(law.name) for law in laws)
        reporter.result("\n".join(f"{WORDS[law.holds]:5}  {law.name:{width}}  {law.detail}" for law in laws))
        return 1 if any(law.holds is False for law in laws) else 0
