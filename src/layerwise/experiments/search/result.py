"""The result of a search: the plan that it chose, the front, and the confirmed numbers, read from the run folder."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from layerwise.experiments.chosen_plan import chosen_plan
from layerwise.experiments.result import Result
from layerwise.plan import Plan
from layerwise.results.selection import Rows
from layerwise.results.vocabulary import (
    ABOVE_CHOSEN,
    AGAIN,
    BETTER,
    CHOSEN,
    DELTA,
    FRONT,
    GAP,
    PRICE,
    REPORT,
    SEARCH,
)
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
        rows = Rows(self.rows).where(measure=SEARCH)
        of_unit = rows.where(condition=rows.where(metric=CHOSEN).axis("condition"))
        prices = of_unit.where(metric=PRICE).along("plan")
        fresh = rows.where(metric=DELTA, task=REPORT).along("plan")
        points = [
            FrontPoint(Plan.parse(plan), prices[plan].value, fresh[plan].value if plan in fresh else 0.0)
            for plan in of_unit.where(metric=FRONT).axis("plan")
        ]
        return sorted(points, key=lambda point: point.price)

    @property
    def confirmed(self) -> pandas.DataFrame:
        """The rows of the chosen plan and of the arms beside it on every text, with the columns of `Score`."""
        best = str(self.best)
        table = self.table(SEARCH)
        own = (table.plan == best) & table.metric.isin([DELTA, AGAIN, GAP])
        return table[own | table.metric.isin([ABOVE_CHOSEN, BETTER])].reset_index(drop=True)
