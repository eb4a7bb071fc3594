"""The rows of a search, looked up: by plan or arm, by text or unit, and by metric."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from layerwise.results.rows import Score

SEARCH, LATENCY = "search", "latency"
RANDOM = "random"
TEXTS: Mapping[str, str] = {"report": "fresh text", "second": "second corpus"}
"""The texts that chose nothing, as they are called."""

UNITS: Mapping[str, str] = {"layers": "layer evaluations", "ms": "milliseconds of a pass", "bytes": "bytes of weights"}
ARMS: Mapping[str, str] = {
    "sweep_effect": "least skip effect", "block_influence": "Block Influence", "angular_distance": "angular distance",
    "deepest_keep_last": "deepest, last kept", RANDOM: "random sets",
}  # fmt: skip
"""The arms in reading order, as they are called."""


@dataclass(frozen=True, slots=True)
class SearchScores:
    """The rows of measure `search` as `rows[subject, task, metric]`, and those of measure `latency`."""

    rows: Mapping[tuple[str, str, str], Score]
    times: Mapping[tuple[str, str], Score]

    @classmethod
    def of(cls, scores: Iterable[Score]) -> SearchScores:
        """The rows of both measures; all others are passed over."""
        own = list(scores)
        rows = {(score.subject, score.task, score.metric): score for score in own if score.measure == SEARCH}
        times = {(score.subject, score.metric): score for score in own if score.measure == LATENCY}
        return cls(rows, times)

    @property
    def chosen(self) -> str | None:
        """The plan that was chosen; `None` of a search that was stopped before."""
        return next((subject for subject, _, metric in self.rows if metric == "chosen"), None)

    @property
    def budget(self) -> str:
        """The budget as it was written."""
        return next((task for _, task, metric in self.rows if metric == "chosen"), "")

    @property
    def units(self) -> tuple[str, ...]:
        """The units in which plans were priced."""
        present = {task for _, task, metric in self.rows if metric == "price"}
        return tuple(unit for unit in UNITS if unit in present)

    @property
    def texts(self) -> tuple[str, ...]:
        """The texts that chose nothing and were read."""
        present = {task for _, task, metric in self.rows if metric == "delta_nll"}
        return tuple(text for text in TEXTS if text in present)

    @property
    def arms(self) -> dict[str, str]:
        """The plan that each arm chose, by the name of the arm, in reading order; the random sets are left out."""
        plans = {task: subject for subject, task, metric in self.rows if metric == "arm"}
        return {name: plans[name] for name in ARMS if name in plans and name != RANDOM}

    @property
    def searched(self) -> tuple[str, ...]:
        """Every plan that read all of the search text."""
        return tuple(
            subject for subject, task, metric in self.rows if (task, metric) == ("search", "delta_nll")
        )  # fmt: skip

    def front(self, unit: str) -> tuple[str, ...]:
        """The plans of the front of a unit, the cheapest first."""
        members = [subject for subject, task, metric in self.rows if (task, metric) == (unit, "front")]
        return tuple(sorted(members, key=lambda plan: self.value(plan, unit, "price") or 0.0))

    def score(self, subject: str, task: str, metric: str) -> Score | None:
        """One row, if there is one."""
        return self.rows.get((subject, task, metric))

    def value(self, subject: str, task: str, metric: str) -> float | None:
        """The value of one row, if there is one."""
        score = self.score(subject, task, metric)
        return None if score is None else score.value
