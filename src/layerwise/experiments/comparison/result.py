"""A comparison in Python: rows, claims, a table and a page, read from the run folders."""

from __future__ import annotations

import html
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING

from layerwise.results import Run

if TYPE_CHECKING:
    import pandas

    from layerwise.report import Compared, CurveCoincidence, Overlaid, OverModels

PAGE = Path("compare.html")
"""Where the page of a comparison is written, in the working folder: it belongs to no run."""


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
        """Every claim that some run has measured: its verdict in each model, in every model and in any model."""
        from layerwise.report import over_models

        return [claim for _, claims in over_models(self.compared) for claim in claims if claim.measured]

    @property
    def coincidences(self) -> list[CurveCoincidence]:
        """Every strategy whose curves have a scale from as trained to chance: whether those of the models coincide."""
        from layerwise.report import coincidences

        return list(coincidences(self.compared))

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
