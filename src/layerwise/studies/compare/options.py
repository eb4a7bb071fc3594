"""`layerwise compare`: compare runs, or what lm-eval logged, without opening a model."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from layerwise.errors import RunError
from layerwise.results.vocabulary import EXCEEDED, TOLERANCE
from layerwise.runner.experiment import Action
from layerwise.runner.option import option
from layerwise.runner.reporter import Reporter
from layerwise.studies.compare.result import COMPARISON_PAGE, ComparisonResult


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
        from layerwise import page as pages
        from layerwise.runner.summary import summary

        data = ComparisonResult(self.runs, self.fail_if_worse).data
        pages.write(self.output, pages.render(data))
        reporter.result(summary(data))
        reporter.result(f"report: {self.output}")
        return int(bool(data.rows.where(measure=TOLERANCE, condition=EXCEEDED)))
