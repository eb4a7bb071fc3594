"""`layerwise compare`: compare runs or lm-eval logs without loading a model."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from layerwise.errors import RunError
from layerwise.results import Run, Score
from layerwise.results import vocabulary as vocab
from layerwise.results.run import is_run
from layerwise.runner.arguments import Metavar, Range, Trait
from layerwise.runner.reporter import Reporter, Silent
from layerwise.runner.result import Reported
from layerwise.runner.verb import verb

if TYPE_CHECKING:
    from layerwise.page import ReportData

COMPARISON_PAGE = Path("compare.html")
"""Default location of the page, in the working directory."""


@dataclass(frozen=True, slots=True)
class ComparisonResult(Reported):
    """A comparison of run directories or evaluations; their files are read on every access."""

    folders: tuple[str, ...]
    fail_if_worse: float | None = None
    exit_code: int = 0

    @property
    def data(self) -> ReportData:
        """Return the rows of the comparison.

        Raises:
            RunError: If the runs or evaluations cannot be compared.
        """
        if not all(map(is_run, self.folders)):
            from layerwise.studies.compare.evaluations import compare_evaluations

            return compare_evaluations(self.folders, self.fail_if_worse)
        from layerwise.runner.summary import report_data
        from layerwise.studies.compare.side_by_side import compare_side_by_side

        if self.fail_if_worse is not None:
            raise RunError("--fail-if-worse requires evaluations, got runs. Pass RUN/lm_eval/PLAN of each run.")
        read = []
        for folder in self.folders:
            with Run.open(folder) as run:
                read.append((folder, report_data(run)))
        return compare_side_by_side(read)

    @property
    def name(self) -> str:
        return ", ".join(self.folders)

    @property
    def page(self) -> Path:
        return COMPARISON_PAGE

    @property
    def claims(self) -> list[Score]:
        """The verdicts on published findings: for each model, in every model, and in any model."""
        return list(self.data.rows.where(measure=vocab.CLAIM))

    @property
    def coincidences(self) -> list[Score]:
        return list(self.data.rows.where(measure=vocab.COINCIDENCE))


@verb(
    "compare",
    group="Results",
    examples=("runs/small runs/large --output sizes.html", "results/base results/new --fail-if-worse 0.02"),
)
def compare(
    *runs: Annotated[str | Path, Trait.LOCATION, Metavar("RUN")],
    fail_if_worse: Annotated[float | None, Range(least=0)] = None,
    output: Annotated[str | Path, Metavar("FILE")] = COMPARISON_PAGE,
    reporter: Reporter | None = None,
) -> ComparisonResult:
    """Compare several models by their runs or lm-eval logs.

    Given runs of `layerwise sweep` or `layerwise diagnose`, the page compares strategies by percent of the depth,
    single layers, the similarity of hidden states, and the findings on published statements.

    Given evaluations, from lm-eval (--log_samples) or a sweep (RUN/lm_eval/PLAN), each one is compared, document by
    document, with the first evaluation. With --fail-if-worse X, the exit code is 1 if some metric is shown to be worse
    by more than X, in the metric's unit; the error rate is 5 % over all tasks and metrics together. Exit code 0 does
    not prove that no metric is worse. No model is loaded.

    Args:
        runs: Run directories or evaluations.
        fail_if_worse: Exit with code 1 if some metric is shown to be worse by more than X.
        output: Page to write.
        reporter: Where the tables go (default: the terminal or the notebook).

    Returns:
        The rows of the comparison. With `fail_if_worse`, rows of measure `tolerance` have the verdict.

    Raises:
        RunError: If there are fewer than two runs, if one is given twice, or if they cannot be compared.

    Example:
        >>> layerwise.compare(("runs/a", "runs/b")).table()  # doctest: +SKIP
    """
    resolved = [Path(folder).resolve() for folder in runs]
    for number, folder in enumerate(resolved):
        if folder in resolved[:number]:
            raise RunError(f"each run must be given only once, got {runs[number]} twice.")
    from layerwise import page as pages
    from layerwise.runner.summary import summary

    reporter = reporter or Silent()
    result = ComparisonResult(tuple(map(str, runs)), fail_if_worse)
    data = result.data
    pages.write(Path(output), pages.render(data))
    reporter.result(summary(data))
    reporter.result(f"report: {output}")
    is_worse = bool(data.rows.where(measure=vocab.TOLERANCE, verdict=vocab.EXCEEDED))
    return replace(result, exit_code=int(is_worse))
