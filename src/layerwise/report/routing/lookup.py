"""The rows of a routing, looked up: by task set, by arm or plan, and by metric."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from layerwise.results.rows import Score

ROUTE = "route"
ROUTER = "router"
BETWEEN = " to "
"""What stands between the set that a router was fitted to and the one that it was asked."""

ARMS: Mapping[str, str] = {
    ROUTER: "router", "fixed": "best fixed plans", "permuted": "its plans, dealt out at random",
    "permuted_in_task": "the same within each task", "hindsight": "best fixed plans in hindsight",
    "random": "every candidate alike", "oracle": "oracle", "oracle_of_noise": "oracle of noise",
}  # fmt: skip
"""The arms in reading order, as they are called."""

SCORES: Mapping[str, str] = {"accuracy": "accuracy", "nats": "nats a question"}

DECISIONS: Mapping[str, str] = {
    "above": "above the best fixed plan", "equivalent": "alike within the margin", "below": "below the best fixed plan",
    "unresolved": "not resolvable",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class RoutingScores:
    """The rows of the measures of a routing as `rows[measure, subject, task, metric]`."""

    rows: Mapping[tuple[str, str, str, str], Score]

    @classmethod
    def of(cls, scores: Iterable[Score]) -> RoutingScores:
        """The rows of routings; all others are passed over."""
        own = (score for score in scores if score.measure == ROUTE or score.measure.startswith(f"{ROUTE}_"))
        return cls({(row.measure, row.subject, row.task, row.metric): row for row in own})

    @property
    def objective(self) -> str:
        """The score that is judged."""
        return next((task for _, _, task, metric in self.rows if metric == "margin"), "accuracy")

    @property
    def verdicts(self) -> dict[str, Score]:
        """The decision of each task set, and of each pair of sets."""
        return {
            task: row
            for (measure, subject, task, _), row in self.rows.items()
            if (measure, subject) == ("route_verdict", ROUTER)
        }

    @property
    def sets(self) -> tuple[str, ...]:
        """The task sets."""
        tasks = (task for measure, _, task, _ in self.rows if measure == "route_plan")
        return tuple(dict.fromkeys(tasks))

    @property
    def plans(self) -> tuple[str, ...]:
        """The candidates, the cheapest first."""
        return tuple(dict.fromkeys(subject for measure, subject, _, _ in self.rows if measure == "route_plan"))

    def setting(self, metric: str) -> float | None:
        """The `margin`, or the `limit` of mean layers."""
        return self.value("route_verdict", "all", self.objective, metric)

    def arm(self, name: str, task: str, metric: str) -> Score | None:
        """A number of an arm at the budget that is judged."""
        return self.rows.get((ROUTE, name, task, metric))

    def value(self, measure: str, subject: str, task: str, metric: str) -> float | None:
        """The value of a row, if there is one."""
        row = self.rows.get((measure, subject, task, metric))
        return None if row is None else row.value

    def curve(self, name: str, task: str, metric: str) -> list[tuple[float, Score]]:
        """An arm at every budget: the router's mean layers there, and the arm's score."""
        points = []
        for (measure, subject, where, kind), row in self.rows.items():
            stem, _, number = kind.partition("/")
            if (measure, subject, where, stem) == ("route_curve", name, task, metric):
                layers = self.value("route_curve", ROUTER, task, f"{metric}_layers/{number}")
                points += [] if layers is None else [(layers, row)]
        return sorted(points, key=lambda point: point[0])

    def kinds(self, task: str) -> tuple[str, ...]:
        """The tasks within a task set."""
        kinds = (kind for measure, _, where, kind in self.rows if (measure, where) == ("route_share", task))
        return tuple(dict.fromkeys(kinds))
