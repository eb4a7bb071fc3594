"""The rows of a frontier, looked up: what was timed by arm, its losses, its milliseconds, and the verdicts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from layerwise.report.frontier.times import TimeScores
from layerwise.results.rows import Score

FRONTIER = "frontier"
IDENTITY, PARALLEL = "identity", "parallel"
FUSED = "parallel, fused"
ARMS: Mapping[str, str] = {
    IDENTITY: "as trained", "skip": "layers skipped", PARALLEL: "parallel, in turn", FUSED: "parallel, fused",
    "looped": "looped", "speculation": "draft and verify", "healed": "pruned and healed",
}  # fmt: skip
"""The arms in reading order, as they are called; parallel layers are two, by how they run."""

BEATEN, BEST, UNRESOLVED = "beaten", "best", "not_resolvable"
ABOVE_RIVAL, ABOVE_CLOSEST = "above_rival", "above_closest"


@dataclass(frozen=True, slots=True)
class TimedPoint:
    """Something that was timed: its arm and kind, how many layers it changes, and what it loses on fresh text."""

    name: str
    arm: str
    kind: str
    size: int
    loss: Score


@dataclass(frozen=True, slots=True)
class FrontierScores:
    """The points of a frontier, their times, and `rows[subject, setting, metric]` with the rival where there is one."""

    points: tuple[TimedPoint, ...]
    chosen_on: Mapping[str, float]
    times: TimeScores
    rows: Mapping[tuple[str, str, str], tuple[str, Score]]

    @classmethod
    def of(cls, scores: Iterable[Score]) -> FrontierScores:
        """The rows of the measures `frontier` and `time`; all others are passed over."""
        scores = list(scores)
        own = [row for row in scores if row.measure == FRONTIER]
        losses = {(row.subject, row.task): row for row in own if row.metric == "delta_nll"}
        points, rows = [], {}
        for row in own:
            if row.metric == "arm" and (row.subject, "report") in losses:
                arm, _, kind = row.task.partition(": ")
                arm = FUSED if arm == PARALLEL and kind.endswith(", fused") else arm
                loss = losses[row.subject, "report"]
                points.append(TimedPoint(row.subject, arm, kind.removesuffix(", fused"), int(row.value), loss))
            elif row.metric in (BEATEN, BEST, UNRESOLVED, ABOVE_RIVAL, ABOVE_CLOSEST):
                setting, _, rival = row.task.partition("; ")
                rows[row.subject, setting, row.metric] = (rival, row)
        chosen_on = {subject: row.value for (subject, task), row in losses.items() if task == "choose"}
        return cls(tuple(points), chosen_on, TimeScores.of(scores), rows)

    @property
    def settings(self) -> tuple[str, ...]:
        """What everything was timed in, a token behind a cache before a prompt."""
        return tuple(reversed(self.times.settings)) if self.points else ()

    @property
    def arms(self) -> tuple[str, ...]:
        """The arms that have points, in reading order."""
        present = {point.arm for point in self.points}
        return tuple(arm for arm in ARMS if arm in present)

    def timed(self, setting: str, arm: str | None = None) -> list[tuple[TimedPoint, Score]]:
        """The points of an arm, or all, with their milliseconds in a setting, the quickest first."""
        pairs = (
            (point, self.times.score(setting, point.name, "ms"))
            for point in self.points
            if arm is None or point.arm == arm
        )
        return sorted(((point, ms) for point, ms in pairs if ms is not None), key=lambda pair: pair[1].value)

    def pareto(self, setting: str, arm: str) -> list[tuple[TimedPoint, Score]]:
        """The points of an arm that no quicker one of it matches: each loses less than all before it."""
        kept: list[tuple[TimedPoint, Score]] = []
        for point, ms in self.timed(setting, arm):
            if not kept or point.loss.value < kept[-1][0].loss.value:
                kept.append((point, ms))
        return kept

    def verdict(self, name: str, setting: str) -> str | None:
        """What is said of a parallel plan in a setting; `None` of anything else."""
        return next((each for each in (BEST, BEATEN, UNRESOLVED) if (name, setting, each) in self.rows), None)

    def above(self, name: str, setting: str, metric: str) -> tuple[str, Score] | None:
        """The rival that a parallel plan is compared with, and what it loses above it."""
        return self.rows.get((name, setting, metric))
