"""The result of a verb. It is read from the run directory when it is needed."""

from __future__ import annotations

import html
import json
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from layerwise.errors import MeasureError, near_matches
from layerwise.plan import Plan, edits
from layerwise.results import Loss, Rows, Run, Score
from layerwise.results import vocabulary as vocab
from layerwise.runner.plan_choice import resolve_plan
from layerwise.search.budget import FrontPoint

if TYPE_CHECKING:
    import pandas

    from layerwise.page import ReportData


def _all_first(rows: list[Score]) -> list[Score]:
    first: dict[tuple[object, ...], int] = {}
    numbers = [first.setdefault((row.measure, *replace(row, task="").key), len(first)) for row in rows]
    pairs = sorted(zip(numbers, rows, strict=True), key=lambda pair: (pair[0], pair[1].task != "all"))
    return [row for _, row in pairs]


@dataclass(frozen=True, slots=True)
class Plot:
    """A figure of the report in Plotly's JSON schema, with a text alternative. Notebooks show the figure."""

    name: str
    alternative: str
    figure: Mapping[str, Any]

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, Any]:
        figure = _drawn(self.figure)
        return {
            "application/vnd.plotly.v1+json": figure,
            "text/html": _html(self.alternative, figure),  # for viewers without plotly, such as nbconvert
            "text/plain": f"{self.name}: {self.alternative}",
        }


def _html(title: str, figure: Mapping[str, Any]) -> str:
    script = resources.files("layerwise.page").joinpath("plotlyjs/plotly-cartesian.min.js").read_text("utf-8")
    content = json.dumps(figure, allow_nan=False).replace("</", "<\\/")
    draw = f'Plotly.newPlot("figure", {{...{content}, config: {{responsive: true}}}})'
    page = f'<div id="figure"></div><script>{script}</script><script>{draw}</script>'
    frame = 'style="width:100%;height:520px;border:0"'
    return f'<iframe title="{html.escape(title)}" {frame} srcdoc="{html.escape(page)}"></iframe>'


def _drawn(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _drawn(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_drawn(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


ANSWERS = ((vocab.EFFECT, vocab.DELTA), (vocab.VERDICT, None), (vocab.SEARCH, vocab.DELTA))
"""Pairs of measure and metric. The rows of the first pair that a run has are its main result."""


def _answer(rows: list[Score], measure: str, metric: str | None) -> list[Score]:
    answer = [row for row in rows if row.measure == measure and metric in (None, row.metric)]
    if measure == vocab.VERDICT:
        return [row for row in answer if row.layer is not None]
    if measure == vocab.SEARCH:
        return [row for row in answer if row.task != vocab.SEARCH]
    return [row for row in answer if row.task == vocab.ALL] or answer


def _layer_of(row: Score, single: Mapping[str, int]) -> int | None:
    return single.get(row.plan) if row.layer is None and row.plan is not None else row.layer


class Reported(ABC):
    """Results that are computed from rows: a table, a summary, figures and a page. Notebooks show the summary."""

    __slots__ = ()

    @property
    @abstractmethod
    def data(self) -> ReportData:
        """Return the data of the report."""

    @property
    @abstractmethod
    def name(self) -> str:
        """Return the name of these results in error messages."""

    @property
    @abstractmethod
    def page(self) -> Path:
        """Return the default path of the HTML page."""

    @property
    def rows(self) -> list[Score]:
        return list(self.data.scores)

    @property
    def summary(self) -> str:
        from layerwise.runner.summary import summary

        return summary(self.data)

    @property
    def findings(self) -> tuple[str, ...]:
        """Return the lines of the summary, which has the findings as sentences."""
        return tuple(line.removeprefix("- ") for line in self.summary.splitlines() if line.strip())

    def plot(self, name: str | None = None) -> Plot:
        """Return the figure of the report that has this name (default: the first figure).

        Raises:
            MeasureError: If there is no figure with this name.
        """
        from layerwise.page.render import build_chapters

        chapters = build_chapters(self.data)
        pictures = {picture.name: picture for chapter in chapters for picture in chapter.pictures}
        if not pictures or (name is not None and name not in pictures):
            raise MeasureError(f"{self.name} has no figure {name or ''!r}; {near_matches(name or '', pictures)}")
        picture = pictures[name] if name is not None else next(iter(pictures.values()))
        figure = next(iter(picture.variants.values()))
        return Plot(picture.name, picture.alternative, figure.payload())

    def table(self, measure: str | None = None) -> pandas.DataFrame:
        """Return the main result of the run as a data frame.

        It has one row for each plan of a sweep (measure `effect`), each layer of a diagnosis (`verdict`), or each plan
        in the report of a search; for all other runs, it has all rows. Pass a `measure` to get all of its rows, or
        "all" to get all rows of the run.

        The columns are `low`, `high`, and all columns of `Score` with a value. If a plan skips a single layer, `layer`
        is that layer.

        Raises:
            MeasureError: If there are no rows of this measure. The message lists the measures of the run.
        """
        import pandas

        rows, depth = self.rows, self.data.depth
        if measure is None:
            rows = next((answer for name, metric in ANSWERS if (answer := _answer(rows, name, metric))), rows)
        elif measure != vocab.ALL:
            measures = {row.measure for row in rows}
            if measure not in measures:
                raise MeasureError(f"{self.name} has no rows of {measure!r}; {near_matches(measure, measures)}")
            rows = [row for row in rows if row.measure == measure]
        single = {str(edits.skip(Plan.identity(depth), layer)): layer for layer in range(depth if depth > 1 else 0)}
        rows = [replace(row, layer=_layer_of(row, single)) for row in _all_first(rows)]
        if measure is None and all(row.layer is not None for row in rows):
            rows.sort(key=lambda row: row.layer or 0)
        columns = list(Score.__dataclass_fields__)
        if measure != vocab.ALL:
            used = {name for name in columns if any(getattr(row, name) is not None for row in rows)} | {"low", "high"}
            columns = [name for name in columns if name in used]
        frame = pandas.DataFrame([[getattr(row, name) for name in columns] for row in rows], columns=columns)
        return frame.astype({"layer": "Int64"}) if "layer" in frame else frame

    def report(self, path: Path | str | None = None) -> Path:
        """Write the report as an HTML page, and return its path."""
        from layerwise import page as pages

        page = Path(path) if path is not None else self.page
        pages.write(page, pages.render(self.data))
        return page

    def _repr_html_(self) -> str:
        lines = "".join(f"<li>{html.escape(line)}</li>" for line in self.findings)
        return f"<p>Run <code>{html.escape(self.name)}</code></p><ul>{lines}</ul>"


@dataclass(frozen=True, slots=True)
class Result(Reported):
    """The result of a verb. It is read from the run directory `folder`."""

    folder: Path

    @property
    def data(self) -> ReportData:
        from layerwise.runner.summary import report_data

        with Run.open(self.folder) as run:
            return report_data(run)

    @property
    def name(self) -> str:
        return str(self.folder)

    @property
    def page(self) -> Path:
        with Run.open(self.folder) as run:
            return run.report

    @property
    def rows(self) -> list[Score]:
        """Return all scores of the run."""
        with Run.open(self.folder) as run:
            return list(run.store.scores())

    @property
    def losses(self) -> list[Loss]:
        """Return the loss of every plan on every window of text, summed over tokens, in nats."""
        with Run.open(self.folder) as run:
            return list(run.store.text_losses())


@dataclass(frozen=True, slots=True)
class SearchResult(Result):
    """The result of `layerwise search`."""

    @property
    def best(self) -> Plan:
        return resolve_plan(str(self.folder))

    @property
    def front(self) -> list[FrontPoint]:
        """Return the Pareto front of cost and loss, starting with the cheapest plan.

        Costs are in the unit of the budget. Losses are differences from the original model on held-out text, in
        nats/token.
        """
        rows = Rows(self.rows).where(measure=vocab.SEARCH)
        of_unit = rows.where(unit=rows.where(metric=vocab.CHOSEN).axis("unit"))
        prices = of_unit.where(metric=vocab.COST).along("plan")
        fresh = rows.where(metric=vocab.DELTA, task=vocab.REPORT).along("plan")
        points = [
            FrontPoint(Plan.parse(plan), prices[plan].value, fresh[plan].value if plan in fresh else 0.0)
            for plan in of_unit.where(metric=vocab.FRONT).axis("plan")
        ]
        return sorted(points, key=lambda point: point.cost)

    @property
    def confirmed(self) -> pandas.DataFrame:
        best = str(self.best)
        table = self.table(vocab.SEARCH)
        confirmations = (table.plan == best) & table.metric.isin([vocab.DELTA, vocab.AGAIN, vocab.GAP])
        return table[confirmations | table.metric.isin([vocab.ABOVE_CHOSEN, vocab.BETTER])].reset_index(drop=True)
