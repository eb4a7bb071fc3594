"""The rows of timed passes, looked up: by setting, by what was timed, and by metric."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from layerwise.results.rows import Score

TIME = "time"


@dataclass(frozen=True, slots=True)
class TimeScores:
    """The rows of measure `time` as `rows[setting, subject, metric]`, in the order in which they were written."""

    rows: Mapping[tuple[str, str, str], Score]

    @classmethod
    def of(cls, scores: Iterable[Score]) -> TimeScores:
        """The rows of the measure; all others are passed over."""
        named = ((str(row.condition), str(row.plan), row) for row in scores if row.measure == TIME)
        return cls({(setting, plan, row.metric): row for setting, plan, row in named})

    @property
    def settings(self) -> tuple[str, ...]:
        """What was timed in: the phase, the batch and the context."""
        return tuple(dict.fromkeys(setting for setting, _, _ in self.rows))

    def subjects(self, setting: str) -> tuple[str, ...]:
        """What was timed in a setting."""
        return tuple(dict.fromkeys(subject for task, subject, _ in self.rows if task == setting))

    def score(self, setting: str, subject: str, metric: str) -> Score | None:
        """One row, if there is one."""
        return self.rows.get((setting, subject, metric))
