"""What every part of a diagnosis works with: the model, the text, the rows of earlier parts, and where its rows go."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from layerwise.measure.contrasts.contrast import CONTRAST, renewed
from layerwise.measure.interventions.intervention import ResultCache
from layerwise.measure.language.evaluation_data import EvalData, sample
from layerwise.measure.stats.verdicts import VerdictCriterion
from layerwise.plan import Plan
from layerwise.results import Loss, Run, Score
from layerwise.runner.reporter import Reporter
from layerwise.stack import Stack

FINISHED = "part"
"""The measure of rows that say that a part is complete; the condition is the part, the metric `DONE`."""

DONE = "done"

TIMES = "run"
"""The measure of rows about the run itself: times, which alone differ from run to run, and the size of the model."""

Note = Callable[[str], None]
"""Takes a note on a part: a sentence about what had to be left out."""


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


@dataclass(frozen=True)
class PartContext:
    """A diagnosis that is being carried out on one model and text, into one run."""

    settings: PartSettings
    run: Run
    reporter: Reporter

    @property
    def stack(self) -> Stack:
        return self.settings.stack

    @property
    def text(self) -> EvalData:
        return self.settings.text

    @property
    def seed(self) -> int:
        return self.settings.seed

    @property
    def rule(self) -> VerdictCriterion:
        return VerdictCriterion(margin=self.settings.min_effect)

    @property
    def baseline(self) -> str:
        return str(Plan.identity(self.stack.depth))

    @cached_property
    def short_text(self) -> EvalData:
        return sample(self.text, self.settings.curve_tokens, self.seed)

    def scores(self, *measures: str) -> list[Score]:
        return [score for measure in measures for score in self.run.store.scores(measure)]

    def losses(self) -> list[Loss]:
        return list(self.run.store.losses())

    def cache(self, part: str, note: Note) -> ResultCache:
        """The losses that the run has stored; new ones are added."""
        return ResultCache(
            known=tuple(self.run.store.losses()), sink=self.run.store.add_losses, progress=self.progress(part), log=note
        )

    def progress(self, part: str) -> Callable[[float], None]:
        return lambda share: self.reporter.progress(part, share)

    def store(self, measure: str, rows: Iterable[Score]) -> None:
        self.run.store.replace_scores(measure, rows)

    def store_contrast(self, claim: str, rows: Iterable[Score]) -> None:
        self.store(CONTRAST, renewed(self.scores(CONTRAST), list(rows), (claim,)))

    def store_time(self, row: Score) -> None:
        others = [each for each in self.scores(TIMES) if each.key != row.key]
        self.store(TIMES, [*others, row])

    def finish(self, part: str) -> None:
        names = sorted(find_finished(self.run) | {part})
        self.store(FINISHED, [Score(FINISHED, DONE, 1.0, condition=name) for name in names])


def find_finished(run: Run) -> set[str]:
    return {str(row.condition) for row in run.store.scores(FINISHED, metric=DONE)}
