"""The rows of a healing, looked up: by model, task and metric."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from layerwise.results.rows import Score

HEALING, CONTRAST, WINDOW, RATE, COST = (
    "healing", "healing_contrast", "healing_window", "healing_rate", "healing_cost",
)  # fmt: skip
UNTOUCHED, PRUNED, WHOLE, RANDOM, SKIP, ALL = "untouched", "pruned", "whole", "random", "skip-", "all"
_SEEDED = re.compile(r"(.+)/(\d+)")
_BEFORE = " before"


@dataclass(frozen=True, slots=True)
class HealingScores:
    """The rows of a healing: `rows[measure, subject, task, metric]`."""

    rows: Mapping[tuple[str, str, str, str], Score]

    @classmethod
    def of(cls, scores: Iterable[Score]) -> HealingScores:
        """The rows of its measures; those of others are passed over."""
        own = (HEALING, CONTRAST, WINDOW, RATE, COST)
        return cls({(row.measure, row.subject, row.task, row.metric): row for row in scores if row.measure in own})

    def score(self, subject: str, task: str, metric: str, measure: str = HEALING) -> Score | None:
        """One row, if there is one."""
        return self.rows.get((measure, subject, task, metric))

    def seeds(self, arm: str, task: str, metric: str) -> list[Score]:
        """The rows of an arm's seeds."""
        return [
            row
            for (measure, subject, of, what), row in self.rows.items()
            if (measure, of, what) == (HEALING, task, metric) and (match := _SEEDED.fullmatch(subject))
            and match[1] == arm
        ]  # fmt: skip

    @property
    def tasks(self) -> tuple[str, ...]:
        """The tasks, all of the text first."""
        named = dict.fromkeys(task for measure, _, task, _ in self.rows if measure == HEALING)
        return tuple(sorted(named, key=lambda task: (task != ALL, task)))

    @property
    def arms(self) -> tuple[str, ...]:
        """The arms that were trained, without those of the windows: the healing that was asked for first."""
        named = dict.fromkeys(
            subject for measure, subject, _, metric in self.rows if measure == HEALING and metric == "above_whole"
        )
        return tuple(arm for arm in named if not arm.startswith(SKIP))

    @property
    def healings(self) -> tuple[str, ...]:
        """The arms without the controls."""
        return tuple(arm for arm in self.arms if arm not in (WHOLE, RANDOM))

    def window(self, curve: str) -> dict[int, Score]:
        """Nats above the untouched model by the number of layers skipped, `before` healing or `healed`; or above the
        whole model that was trained as long, `healed@whole`.
        """
        return {
            int(task): row
            for (measure, subject, task, metric), row in self.rows.items()
            if (measure, subject, metric) == (WINDOW, curve, "above_whole") and task.isdecimal()
        }
