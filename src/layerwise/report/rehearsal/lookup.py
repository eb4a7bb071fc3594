"""The rows of a rehearsal, looked up: by arm, by the replicas of a layer, and by how many nodes are dead."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from layerwise.report.arms import in_reading_order
from layerwise.results.rows import Score

REHEARSAL = "rehearsal"
BASELINE = "baseline"
QUALITY: Mapping[str, tuple[str, float]] = {
    "accuracy": ("accuracy (%)", 100.0),
    "agreement": ("tokens as undisturbed (%)", 100.0),
    "nll_added": ("nats per token added", 1.0),
}
"""The metrics of quality, each with its axis and its scale."""

LATENCY = ("p50", "p95", "p99")
_TASK = re.compile(r"(\d+) of (\d+) dead, (\d+) replicas?")


@dataclass(frozen=True, slots=True)
class RehearsalScores:
    """The rows of a rehearsal: `rows[arm, replicas, dead, metric]`; `nulls[arm]` is what guessing one class scores."""

    rows: Mapping[tuple[str, int, int, str], Score]
    nulls: Mapping[str, Score]
    nodes: int

    @classmethod
    def of(cls, scores: Iterable[Score]) -> RehearsalScores:
        """The rows of the measure `rehearsal`; those of other measures, and of unknown tasks, are passed over."""
        rows, nulls, nodes = {}, {}, 0
        for score in scores:
            if score.measure != REHEARSAL:
                continue
            match = _TASK.fullmatch(score.task)
            if match is not None:
                dead, nodes, replicas = (int(number) for number in match.groups())
                rows[score.subject, replicas, dead, score.metric] = score
            elif score.metric == "accuracy@commonest":
                nulls[score.subject] = score
        return cls(rows, nulls, nodes)

    @property
    def arms(self) -> tuple[str, ...]:
        """The arms, in reading order."""
        return tuple(in_reading_order({arm for arm, _, _, _ in self.rows}))

    @property
    def replicas(self) -> tuple[int, ...]:
        """How many nodes each layer lay on, most first."""
        return tuple(sorted({replicas for _, replicas, _, _ in self.rows}, reverse=True))

    @property
    def dead(self) -> tuple[int, ...]:
        """The numbers of dead nodes."""
        return tuple(sorted({dead for _, _, dead, _ in self.rows}))

    @property
    def qualities(self) -> tuple[str, ...]:
        """The metrics of quality that were measured."""
        present = {metric for _, _, _, metric in self.rows}
        return tuple(metric for metric in QUALITY if metric in present)

    def score(self, arm: str, replicas: int, dead: int, metric: str) -> Score | None:
        """One row, if there is one."""
        return self.rows.get((arm, replicas, dead, metric))
