"""`layerwise compare`: several models side by side, from the rows of their runs.

The rows are read and nothing is measured: no model is opened, and this module needs no torch.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from layerwise.errors import RunError
from layerwise.experiments.experiment import Action
from layerwise.experiments.option import option
from layerwise.experiments.reporter import Reporter
from layerwise.experiments.result import COMPARISON_PAGE, ComparisonResult


@dataclass(frozen=True, kw_only=True)
class Comparison(Action):
    """Compare models side by side, from the rows of their runs.

    The runs are sweeps, or diagnoses. The page has every strategy over percent of the depth, single layers, similarity
    of hidden states, and every published claim: in which models it holds, and whether it does in all of them or in any.
    No model is opened.
    """

    VERB: ClassVar = "compare"
    EXAMPLES: ClassVar = ("runs/small runs/large", "runs/SmolLM2-135M runs/SmolLM2-360M --output sizes.html")

    runs: tuple[str, ...] = option(
        help="Run folders of sweeps, or of diagnoses.", metavar="RUN", positional=True, repeated=True, is_location=True
    )
    output: Path = option(COMPARISON_PAGE, metavar="FILE")

    def check(self) -> None:
        """Raise `RunError` for a run that is named twice."""
        resolved = [Path(folder).resolve() for folder in self.runs]
        for number, folder in enumerate(resolved):
            if folder in resolved[:number]:
                raise RunError(
                    f"{self.runs[number]} is named twice, and what it shows would count twice; name each run once"
                )

    def act(self, reporter: Reporter) -> int:
        """Compare the runs, write the page and print the tables. Raises what `compare` raises."""
        from layerwise import report as pages
        from layerwise.experiments.summary import summary

        data = ComparisonResult(self.runs).data
        pages.write(self.output, pages.render(data))
        reporter.result(summary(data))
        reporter.result(f"report: {self.output}")
        return 0
