"""`layerwise compare`: compare runs, or what lm-eval logged, without opening a model."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

from layerwise.errors import RunError
from layerwise.results.vocabulary import EXCEEDED, TOLERANCE
from layerwise.runner.argument import Metavar, Range, Trait
from layerwise.runner.reporter import Reporter, Silent
from layerwise.runner.verb import verb
from layerwise.studies.compare.result import COMPARISON_PAGE, ComparisonResult


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
    """Compare models: from the rows of their runs, or from what lm-eval logged.

    The runs are sweeps or diagnoses. The page has every strategy over percent of the depth, single layers, similarity
    of hidden states, and every published claim: in which models it holds, and whether it does in all of them or in any.

    Or they are evaluations, of lm-eval (--log_samples) or of a sweep (RUN/lm_eval/PLAN), each compared with the first
    one document by document. With --fail-if-worse X the exit code is 1 where a loss above X, in the unit of its metric,
    is shown, at 5 % over all tasks and metrics. A pass does not say that there is none. No model is opened.

    Args:
        runs: Run directories, or evaluations.
        fail_if_worse: End with code 1 where a loss above X is shown.
        output: Page to write.
        reporter: Where the tables go (default: the terminal or the notebook).

    Returns:
        The rows of the comparison; with `fail_if_worse`, rows of `tolerance` say whether a greater loss is shown.

    Raises:
        RunError: For fewer than two runs, for the same run twice, and for runs that cannot be compared.
    """
    resolved = [Path(folder).resolve() for folder in runs]
    for number, folder in enumerate(resolved):
        if folder in resolved[:number]:
            raise RunError(f"{runs[number]} is named twice, and what it shows would count twice; name each run once")
    from layerwise import page as pages
    from layerwise.runner.summary import summary

    reporter = reporter or Silent()
    result = ComparisonResult(tuple(map(str, runs)), fail_if_worse)
    data = result.data
    pages.write(Path(output), pages.render(data))
    reporter.result(summary(data))
    reporter.result(f"report: {output}")
    is_worse = bool(data.rows.where(measure=TOLERANCE, condition=EXCEEDED))
    return replace(result, exit_code=int(is_worse))
