"""Try every method of training at the same learning rates and batch sizes; validation chooses among them.

A trial is a whole training with its own seed, and never sees reported examples.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from layerwise.data.splits import Splits
from layerwise.errors import DataError
from layerwise.page.sections.training import tuning_sentences
from layerwise.results import Score
from layerwise.results.training_record import TrainingRecord
from layerwise.results.vocabulary import TUNING
from layerwise.runner.study import Study
from layerwise.runner.trainings import (
    RecipeTraining,
    TrainingsUnit,
    best_rate,
    chosen_row,
    sweep_rates,
    trial,
    tried_rows,
)
from layerwise.train.recipe import Recipe, Settings


@dataclass(frozen=True)
class SettingsGrid:
    """The rates and the sizes of batch that every method is tried at; of one alone nothing is chosen."""

    rates: tuple[float, ...]
    batches: tuple[int, ...]

    @classmethod
    def of(cls, rates: Sequence[float], batches: Sequence[int], settings: Settings) -> SettingsGrid | None:
        """Return the grid to try, with the `settings` of all trainings for what is not tuned; None for no grid."""
        if not (rates or batches):
            return None
        tried = dict.fromkeys(rates or (settings.learning_rate,))
        return cls(tuple(tried), tuple(sorted({*(batches or (settings.batch_size,))})))

    def trials(self, recipe: Recipe) -> Iterator[RecipeTraining]:
        return (self.trial(recipe, rate, batch) for batch in self.batches for rate in self.rates)

    def trial(self, recipe: Recipe, rate: float, batch: int) -> RecipeTraining:
        shown = (rate,) if len(self.batches) == 1 else (rate, batch)
        return trial(tuned_recipe(recipe, rate, batch), *shown)

    def choose(
        self, recipes: tuple[Recipe, ...], task: TrainingsUnit, study: Study
    ) -> tuple[tuple[Recipe, ...], list[Score]]:
        """Try every method at every point on the splits of `task`; return the tuned methods, and the rows of trials."""
        chosen, rows = [], []
        for recipe in recipes:

            def train_at(rate: float, batch: int, recipe: Recipe = recipe) -> TrainingRecord:
                (record,) = study.execute(replace(task, trainings=[self.trial(recipe, rate, batch)]))
                return record

            losses = {batch: sweep_rates(self.rates, partial(train_at, batch=batch)) for batch in self.batches}
            best = min(self.batches, key=lambda batch: min(losses[batch].values()))
            chosen.append(tuned_recipe(recipe, best_rate(losses[best]), best))
            own = [row for batch in self.batches for row in tried_rows(TUNING, recipe.arm, losses[batch], batch)]
            own.append(chosen_row(TUNING, recipe.arm, losses[best], best))
            for sentence in tuning_sentences(own):
                study.reporter.log(sentence)
            rows += own
        return tuple(chosen), rows


def tuned_recipe(recipe: Recipe, rate: float, batch: int) -> Recipe:
    return replace(recipe, settings=replace(recipe.settings, learning_rate=rate, batch_size=batch))


def splits_of_trials(splits: Splits, held_out: Callable[[], Splits]) -> Splits:
    """Return the splits of trials, without reported examples; `held_out()` if checkpoints are selected on those.

    Raises `DataError` for images without a split to report.
    """
    if not splits.selects_on_reported:
        return splits
    if not splits.origin and not hasattr(splits.test, "windows"):
        raise DataError(
            f"{splits.name} brings no images of its own to report, so that what chooses a rate or a batch would be "
            "among what is reported: leave out --select-on reported"
        )
    return held_out()
