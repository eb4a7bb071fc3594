"""The result of an experiment: a run folder, read when it is first used."""

from __future__ import annotations

import html
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from layerwise.errors import MeasureError, near_matches
from layerwise.results import Run
from layerwise.results.rows import Loss, Score

if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True, slots=True)
class Result:
    """What an experiment computed, in the run folder `folder`.

    The rows are read from the store of the run each time, so a result of a run that goes on elsewhere stays true. In a
    notebook a result shows its summary.
    """

    folder: Path

    @property
    def rows(self) -> list[Score]:
        """Every score of the run, one row for each number, with its interval where it has one."""
        with Run.open(self.folder) as run:
            return list(run.store.scores())

    @property
    def losses(self) -> list[Loss]:
        """The summed loss of every plan on every window of the text, in nats, for experiments that measure plans."""
        with Run.open(self.folder) as run:
            return list(run.store.text_losses())

    @property
    def summary(self) -> str:
        """The results in sentences, one a line, as the command line prints them."""
        from layerwise.experiments.summary import report_data, summary

        with Run.open(self.folder) as run:
            return summary(report_data(run))

    def table(self, measure: str | None = None) -> pandas.DataFrame:
        """The scores as a data frame with the columns of `Score`; `measure` keeps the rows of one measure.

        Raises `MeasureError`, which names the measures of the run, for one that has no rows.
        """
        import pandas

        rows = self.rows
        if measure is not None:
            measures = {row.measure for row in rows}
            if measure not in measures:
                raise MeasureError(f"{self.folder} has no rows of {measure!r}; {near_matches(measure, measures)}")
            rows = [row for row in rows if row.measure == measure]
        columns = list(Score.__dataclass_fields__)
        return pandas.DataFrame([[getattr(row, name) for name in columns] for row in rows], columns=columns)

    def report(self, path: Path | str | None = None) -> Path:
        """Write the report as one HTML page, by default `report.html` in the run folder; returns where it is."""
        from layerwise import report as pages
        from layerwise.experiments.summary import report_data

        with Run.open(self.folder) as run:
            page = Path(path) if path is not None else run.report
            pages.write(page, pages.render(report_data(run)))
        return page

    def _repr_html_(self) -> str:
        lines = "".join(f"<li>{html.escape(line.removeprefix('- '))}</li>" for line in self.summary.splitlines())
        return f"<p>Run <code>{html.escape(str(self.folder))}</code></p><ul>{lines}</ul>"
