"""The result of a search: the plan that it chose, the front, and the confirmed numbers, read from the run folder."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from layerwise.experiments.chosen_plan import SEARCH, chosen_plan
from layerwise.experiments.result import Result
from layerwise.plan import Plan
from layerwise.results.rows import Score
from layerwise.search.front import FrontPoint

if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True, slots=True)
class SearchResult(Result):
    """What a search computed, in the run folder `folder`."""

    @property
    def best(self) -> Plan:
        """The plan that was chosen, on text that neither searched for it nor reports on it."""
        return chosen_plan(str(self.folder))

    @property
    def front(self) -> list[FrontPoint]:
        """The front in the unit of the budget, the cheapest plan first; losses are those on the report text.

        A loss is a difference to the model as trained, in nats per token, which itself has 0.
        """
        rows = [row for row in self.rows if row.measure == SEARCH]
        unit = next(row.task for row in rows if row.metric == "chosen").partition("=")[0]
        prices = {row.subject: row.value for row in rows if (row.metric, row.task) == ("price", unit)}
        fresh = {row.subject: row.value for row in rows if (row.metric, row.task) == ("delta_nll", "report")}
        members = [row.subject for row in rows if (row.metric, row.task) == ("front", unit)]
        return sorted(
            (FrontPoint(Plan.parse(text), prices[text], fresh.get(text, 0.0)) for text in members),
            key=lambda point: point.price,
        )

    @property
    def confirmed(self) -> pandas.DataFrame:
        """The rows of the chosen plan and of the arms beside it on every text, with the columns of `Score`."""
        best = str(self.best)
        table = self.table(SEARCH)
        own = (table.subject == best) & table.metric.isin(["delta_nll", "again", "gap"])
        return table[own | table.metric.isin(["above_chosen", "better"])].reset_index(drop=True)


def score_of(rows: list[Score], subject: str, task: str, metric: str) -> Score | None:
    """The one row of this subject, task and metric, if there is one."""
    return next((row for row in rows if (row.subject, row.task, row.metric) == (subject, task, metric)), None)
