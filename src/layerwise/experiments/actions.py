"""`layerwise verify` checks a model under a plan; `layerwise compare` compares runs without opening a model."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from layerwise.errors import RunError
from layerwise.experiments.experiment import Action
from layerwise.experiments.option import option
from layerwise.experiments.options.common import ModelOptions
from layerwise.experiments.options.plans import given_plan
from layerwise.experiments.reporter import Reporter, waiting
from layerwise.experiments.result import COMPARISON_PAGE, ComparisonResult
from layerwise.plan import Plan
from layerwise.results.vocabulary import EXCEEDED, TOLERANCE

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
        from layerwise.experiments.opening import open_named

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


@dataclass(frozen=True, kw_only=True)
class Comparison(Action):
    """Compare models side by side: from the rows of their runs, or from what lm-eval logged of them.

    The runs are sweeps, or diagnoses. The page has every strategy over percent of the depth, single layers, similarity
    of hidden states, and every published claim: in which models it holds, and whether it does in all of them or in any.

    Or they are evaluations, of lm-eval (--log_samples) or a sweep (RUN/lm_eval/PLAN), compared with the first document
    by document. With --fail-if-worse X the exit code is 1 where a loss above X, in the unit of its metric, is shown, at
    5 % over all tasks and metrics. A pass does not say that there is none. No model is opened.
    """

    VERB: ClassVar = "compare"
    EXAMPLES: ClassVar = ("runs/small runs/large --output sizes.html", "results/base results/new --fail-if-worse 0.02")

    runs: tuple[str, ...] = option(
        help="Run folders, or evaluations.", metavar="RUN", positional=True, repeated=True, is_location=True
    )
    fail_if_worse: float | None = option(None, "End with code 1 where a loss above X is shown.", metavar="X", least=0)
    output: Path = option(COMPARISON_PAGE, metavar="FILE")

    def check(self) -> None:
        resolved = [Path(folder).resolve() for folder in self.runs]
        for number, folder in enumerate(resolved):
            if folder in resolved[:number]:
                raise RunError(
                    f"{self.runs[number]} is named twice, and what it shows would count twice; name each run once"
                )

    def act(self, reporter: Reporter) -> int:
        """Write the page and print the tables; returns 1 for a loss that is not tolerated. Raises as `compare` does."""
        from layerwise import report as pages
        from layerwise.experiments.summary import summary

        data = ComparisonResult(self.runs, self.fail_if_worse).data
        pages.write(self.output, pages.render(data))
        reporter.result(summary(data))
        reporter.result(f"report: {self.output}")
        return int(bool(data.rows.where(measure=TOLERANCE, condition=EXCEEDED)))
