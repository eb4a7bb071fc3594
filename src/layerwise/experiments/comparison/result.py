"""A comparison in Python: rows, claims, a table and a page, read from the run folders."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from layerwise.experiments.result import Reported
from layerwise.results import Run
from layerwise.results.rows import Score
from layerwise.results.vocabulary import CLAIM, COINCIDENCE

if TYPE_CHECKING:
    from layerwise.report import ReportData

PAGE = Path("compare.html")
"""Where the page of a comparison is written, in the working folder: it belongs to no run."""


@dataclass(frozen=True, slots=True)
class ComparisonResult(Reported):
    """Several models side by side, read from the run folders `folders` each time that something is asked of it."""

    folders: tuple[str, ...]

    @property
    def data(self) -> ReportData:
        """The runs with their rows. Raises `RunError` where they cannot stand side by side."""
        from layerwise.experiments.summary import report_data
        from layerwise.report import side_by_side

        read = []
        for folder in self.folders:
            with Run.open(folder) as run:
                read.append((folder, report_data(run)))
        return side_by_side(read)

    @property
    def name(self) -> str:
        """The runs, as they were named."""
        return ", ".join(self.folders)

    @property
    def page(self) -> Path:
        """Where the page is written unless it is named."""
        return PAGE

    @property
    def claims(self) -> list[Score]:
        """Every claim that some run has measured: its verdict in each model, in every model and in any model."""
        return list(self.data.rows.where(measure=CLAIM))

    @property
    def coincidences(self) -> list[Score]:
        """Every strategy whose curves have a scale from as trained to chance: whether those of the models coincide."""
        return list(self.data.rows.where(measure=COINCIDENCE))
