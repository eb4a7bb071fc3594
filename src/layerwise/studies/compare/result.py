"""The result of a comparison: runs or evaluations of lm-eval, read when something is asked of them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from layerwise.errors import RunError
from layerwise.results import Run, Score
from layerwise.results import vocabulary as vocab
from layerwise.results.run import is_run
from layerwise.runner.result import Reported

if TYPE_CHECKING:
    from layerwise.page import ReportData

COMPARISON_PAGE = Path("compare.html")
"""Where the page of a comparison is written, in the working folder: it belongs to no run."""


@dataclass(frozen=True, slots=True)
class ComparisonResult(Reported):
    """Several models side by side, of run folders or evaluations, read each time that something is asked of it."""

    folders: tuple[str, ...]
    fail_if_worse: float | None = None
    exit_code: int = 0

    @property
    def data(self) -> ReportData:
        """The runs or evaluations with their rows. Raises `RunError` where they cannot stand side by side."""
        if not all(map(is_run, self.folders)):
            from layerwise.studies.compare.evaluations import compared

            return compared(self.folders, self.fail_if_worse)
        from layerwise.runner.summary import report_data
        from layerwise.studies.compare.side_by_side import side_by_side

        if self.fail_if_worse is not None:
            raise RunError("--fail-if-worse is about evaluations, and runs were given; name RUN/lm_eval/PLAN of each")
        read = []
        for folder in self.folders:
            with Run.open(folder) as run:
                read.append((folder, report_data(run)))
        return side_by_side(read)

    @property
    def name(self) -> str:
        return ", ".join(self.folders)

    @property
    def page(self) -> Path:
        return COMPARISON_PAGE

    @property
    def claims(self) -> list[Score]:
        """Every claim that some run has measured: its verdict in each model, in every model and in any model."""
        return list(self.data.rows.where(measure=vocab.CLAIM))

    @property
    def coincidences(self) -> list[Score]:
        return list(self.data.rows.where(measure=vocab.COINCIDENCE))
