"""The result of a routing: the router that it fitted, and the verdicts, read from the run folder."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from layerwise.experiments.result import Result
from layerwise.results.selection import Rows
from layerwise.results.vocabulary import ROUTE_VERDICT, ROUTER

if TYPE_CHECKING:
    from layerwise.search.routing.router import PlanRouter

FILE = "router.safetensors"


@dataclass(frozen=True, slots=True)
class RoutingResult(Result):
    """What a routing computed, in the run folder `folder`."""

    @property
    def router(self) -> PlanRouter:
        """The router, fitted to all questions of all task sets."""
        from layerwise.search.routing.router import PlanRouter

        return PlanRouter.load(self.folder / FILE)

    @property
    def verdicts(self) -> dict[str, str]:
        """The decision of each task set, and of each `A to B` (fitted to A, asked B): one of `RoutingDecision`."""
        decided = Rows(self.rows).where(measure=ROUTE_VERDICT, arm=ROUTER)
        return {row.task if row.condition is None else f"{row.condition} to {row.task}": row.metric for row in decided}
