"""The rows of speculative decoding, looked up: by measure, by what was counted, and by metric."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from layerwise.results.rows import Score

DRAFT, SPECULATION = "speculation_draft", "speculation"
PLAIN, DRAFTED, ALL = "generate", "speculative", "all"
RATE = "tokens_per_second"


@dataclass(frozen=True, slots=True)
class SpeculationScores:
    """The rows of its measures: `drafts[plan, metric]` before anything was generated, `rows[task, metric]` after."""

    drafts: Mapping[tuple[str, str], Score]
    rows: Mapping[tuple[str, str], Score]

    @classmethod
    def of(cls, scores: Iterable[Score]) -> SpeculationScores:
        """The rows of its measures; those of others are passed over."""
        drafts, rows = {}, {}
        for row in scores:
            if row.measure == DRAFT:
                drafts[row.subject, row.metric] = row
            elif row.measure == SPECULATION:
                rows[row.task, row.metric] = row
        return cls(drafts, rows)

    @property
    def chosen(self) -> str | None:
        """The draft that was generated with."""
        return next((plan for plan, metric in self.drafts if metric == "chosen"), None)

    @property
    def candidates(self) -> tuple[str, ...]:
        """The drafts that were compared, the best first."""
        return tuple(dict.fromkeys(plan for plan, metric in self.drafts if metric == "agreement"))

    @property
    def ways(self) -> tuple[str, ...]:
        """The ways of decoding that were timed."""
        return tuple(task for task, metric in self.rows if metric == RATE)

    def expected(self, metric: str, plan: str | None = None) -> float:
        """What was expected of a draft, the chosen one if no other is named; not a number where that is not known."""
        row = self.drafts.get((plan or self.chosen or "", metric))
        return float("nan") if row is None else row.value

    def count(self, metric: str) -> int:
        """One of the counts over all prompts."""
        return int(self.rows[ALL, metric].value)
