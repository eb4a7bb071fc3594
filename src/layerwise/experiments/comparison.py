"""`layerwise compare`: several models side by side, from the rows of their runs.

The rows are read and nothing is measured: no model is opened, and this module needs no torch.
"""

from __future__ import annotations

import html
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from layerwise.errors import RunError
from layerwise.experiments.experiment import Action
from layerwise.experiments.option import configured, option
from layerwise.experiments.reporter import Reporter
from layerwise.results import Run

if TYPE_CHECKING:
    import pandas

    from layerwise.report import Compared, Overlaid, OverModels

PAGE = Path("compare.html")


@dataclass(frozen=True, kw_only=True)
class Comparison(Action):
    """Compare models side by side, from the rows of their sweeps or of their diagnoses.

    The page has every strategy over percent of the depth, single layers, similarity of hidden states, and every
    published claim: in which models it holds, and whether it does in all of them or in any. No model is opened.
    """

    VERB: ClassVar = "compare"
    EXAMPLES: ClassVar = ("runs/small runs/large", "runs/SmolLM2-135M runs/SmolLM2-360M --output sizes.html")

    runs: tuple[str, ...] = option(
        help="Run folders of sweeps, or of diagnoses.", metavar="RUN", positional=True, repeated=True, is_location=True
    )
    output: Path = option(PAGE, "Page to write.", metavar="FILE")

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

        compared = ComparisonResult(self.runs).compared
        claims = pages.over_models(compared)
        pages.write(self.output, pages.comparison_page(compared, claims))
        reporter.result("\n".join(pages.comparison_lines(compared, claims)))
        reporter.result(f"report: {self.output}")
        return 0


@dataclass(frozen=True, slots=True)
class ComparisonResult:
    """Several models side by side, read from the run folders `folders` each time that something is asked of it.

    In a notebook it shows its summary.
    """

    folders: tuple[str, ...]

    @property
    def compared(self) -> Compared:
        """The runs with their rows. Raises `RunError` where they cannot stand side by side."""
        from layerwise.experiments.summary import report_data
        from layerwise.report import Compared

        read = []
        for folder in self.folders:
            with Run.open(folder) as run:
                read.append((folder, report_data(run)))
        return Compared.of(read)

    @property
    def rows(self) -> list[Overlaid]:
        """Every number of every model that the figures show, with its interval, by percent of the depth."""
        from layerwise.report import overlaid

        return list(overlaid(self.compared))

    @property
    def claims(self) -> list[OverModels]:
        """Every claim that some run has measured: its verdict in each model, in every model and in some model."""
        from layerwise.report import over_models

        return [claim for _, claims in over_models(self.compared) for claim in claims if claim.measured]

    @property
    def summary(self) -> str:
        """The models, the loss at half of the depth and the claims, as the command line prints them."""
        from layerwise.report import comparison_lines, over_models

        compared = self.compared
        return "\n".join(comparison_lines(compared, over_models(compared)))

    def table(self, measure: str | None = None) -> pandas.DataFrame:
        """The rows as a data frame with the columns of `Overlaid`; `measure` keeps `curve` or `layer` alone."""
        import pandas

        from layerwise.report import Overlaid

        columns = [each.name for each in fields(Overlaid)]
        rows = [row for row in self.rows if measure in (None, row.measure)]
        return pandas.DataFrame([[getattr(row, name) for name in columns] for row in rows], columns=columns)

    def report(self, path: Path | str = PAGE) -> Path:
        """Write the comparison as one HTML page; returns where it is."""
        from layerwise import report as pages

        page, compared = Path(path), self.compared
        pages.write(page, pages.comparison_page(compared, pages.over_models(compared)))
        return page

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(self.summary)}</pre>"


def compare(*runs: Path | str) -> ComparisonResult:
    """Put the models of several runs side by side: all of them sweeps, or all of them diagnoses.

        layerwise.compare("runs/small", "runs/large").report("sizes.html")

    Raises `RunError` for fewer than two runs, for the same run twice, and for runs that cannot be compared.
    """
    config: Comparison = configured(Comparison, {"runs": [str(run) for run in runs]}, "layerwise compare")
    result = ComparisonResult(config.runs)
    _ = result.compared  # what cannot be compared is refused now, and not when something is asked of the result
    return result
