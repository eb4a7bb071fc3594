"""Inputs of the parts of a diagnosis: the model, the text, the rows of earlier parts, and the run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from layerwise.measure.contrasts.contrast import CONTRAST, replace_claims
from layerwise.measure.interventions.intervention import ResultCache
from layerwise.measure.language.evaluation_data import EvalData, sample
from layerwise.plan import Plan
from layerwise.results import Loss, Run, Score
from layerwise.runner.reporter import Reporter
from layerwise.stack import Stack

FINISHED = "part"
"""Measure of rows that mark a part of the diagnosis as complete. Their `section` is the name of the part."""

DONE = "done"

TIMES = "run"
"""Measure of rows about the run itself, such as times and the size of the model."""


@dataclass(frozen=True, kw_only=True)
class PartSettings:
    stack: Stack
    text: EvalData
    parts: Sequence[str]
    seed: int
    min_effect: float
    curve_tokens: int
    recovery_steps: int
    recovery_layers: Sequence[int] | None
    treatments: Sequence[str]


@dataclass(frozen=True, kw_only=True)
class PartContext(PartSettings):
    """One part of a diagnosis, and its run. `notes` tell what the part did not measure."""

    part: str
    run: Run
    reporter: Reporter
    notes: list[str] = field(default_factory=list)

    @property
    def baseline(self) -> str:
        return str(Plan.identity(self.stack.depth))

    @cached_property
    def short_text(self) -> EvalData:
        return sample(self.text, self.curve_tokens, self.seed)

    def scores(self, *measures: str) -> list[Score]:
        return [score for measure in measures for score in self.run.store.scores(measure)]

    def cache(self) -> ResultCache[Loss]:
        return ResultCache(
            known=tuple(self.run.store.losses()),
            sink=self.run.store.add_losses,
            progress=self.progress,
            log=self.notes.append,
        )

    def progress(self, share: float) -> None:
        self.reporter.progress(self.part, share)

    def store(self, measure: str, rows: Iterable[Score]) -> None:
        self.run.store.replace_scores(measure, rows)

    def store_contrast(self, claim: str, rows: Iterable[Score]) -> None:
        self.store(CONTRAST, replace_claims(self.scores(CONTRAST), list(rows), (claim,)))

    def store_time(self, row: Score) -> None:
        others = [each for each in self.scores(TIMES) if each.key != row.key]
        self.store(TIMES, [*others, row])

    def finish(self) -> None:
        names = sorted(find_finished(self.run) | {self.part})
        self.store(FINISHED, [Score(FINISHED, DONE, 1.0, section=name) for name in names])


def find_finished(run: Run) -> set[str]:
    return {str(row.section) for row in run.store.scores(FINISHED, metric=DONE)}
