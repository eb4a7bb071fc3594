"""The tuning of robust trainings: every method is tried at the same rates and sizes of batch, and validation chooses.

The paper took the better of batches of 640 and 128 for each method. A trial is a whole training with a seed of its own,
and what it is judged by is never among the examples that are reported.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, replace
from typing import Any

from layerwise.data.splits import Splits
from layerwise.errors import DataError
from layerwise.experiments.engines.trainings import RecipeTraining, TrainingsUnit
from layerwise.experiments.engines.tuning import RateSweep, chosen_row, trial, tried_rows
from layerwise.experiments.reporter import Reporter
from layerwise.experiments.robustness.config import RobustTraining
from layerwise.report.kinds.training import tuning_sentences
from layerwise.results.rows import Score
from layerwise.results.vocabulary import TUNING
from layerwise.train.recipe import Recipe

Choice = Generator[Any, Any, tuple[tuple[Recipe, ...], list[Score]]]


@dataclass(frozen=True)
class SettingsGrid:
    """The rates and the sizes of batch that every method is tried at; of one alone nothing is chosen."""

    rates: tuple[float, ...]
    batches: tuple[int, ...]

    @classmethod
    def of(cls, config: RobustTraining, settings: Any) -> SettingsGrid | None:
        """The grid of the options, with the `settings` of all trainings for what is not tuned; `None` for no grid."""
        if not config.is_tuned:
            return None
        rates = dict.fromkeys(config.learning_rates or (settings.learning_rate,))
        return cls(tuple(rates), tuple(sorted({*(config.batch_sizes or (settings.batch_size,))})))

    def trials(self, recipe: Recipe) -> Iterator[RecipeTraining]:
        """The trials of a method that are certain to come."""
        return (self.trial(recipe, rate, batch) for batch in self.batches for rate in self.rates)

    def trial(self, recipe: Recipe, rate: float, batch: int) -> RecipeTraining:
        """The trial of a method at a rate and a size of batch."""
        shown = (rate,) if len(self.batches) == 1 else (rate, batch)
        return trial(tuned_recipe(recipe, rate, batch), *shown)

    def choose(self, recipes: tuple[Recipe, ...], unit: TrainingsUnit, reporter: Reporter) -> Choice:
        """Try every method at every point, on the splits of `unit`; the methods as tuned, and the rows that say how."""
        sweep: RateSweep[tuple[str, int]] = RateSweep()
        chosen, rows = [], []
        for recipe in recipes:
            for batch in self.batches:
                key = (recipe.arm, batch)
                for rate in sweep.due(key, self.rates):
                    (record,) = yield from replace(unit, trainings=[self.trial(recipe, rate, batch)])
                    sweep.note(key, rate, record)
            losses = {batch: sweep.losses[recipe.arm, batch] for batch in self.batches}
            best = min(self.batches, key=lambda batch: min(losses[batch].values()))
            chosen.append(tuned_recipe(recipe, sweep.best((recipe.arm, best)), best))
            own = [row for batch in self.batches for row in tried_rows(TUNING, recipe.arm, losses[batch], batch)]
            own.append(chosen_row(TUNING, recipe.arm, losses[best], best))
            for sentence in tuning_sentences(own):
                reporter.log(sentence)
            rows += own
        return tuple(chosen), rows


def tuned_recipe(recipe: Recipe, rate: float, batch: int) -> Recipe:
    """The method at a learning rate, in batches of a size."""
    return replace(recipe, settings=replace(recipe.settings, learning_rate=rate, batch_size=batch))


def splits_of_trials(splits: Splits, held_out: Callable[[], Splits]) -> Splits:
    """The splits that trials are trained and judged on: nothing that is reported is among them.

    Where checkpoints are selected on the examples that are reported, trials have those of `held_out()`. Raises
    `DataError` for images that bring no split of their own to report: what would be held out is reported then.
    """
    if not splits.selects_on_reported:
        return splits
    if not splits.origin and not hasattr(splits.test, "windows"):
        raise DataError(
            f"{splits.name} brings no images of its own to report, so that what chooses a rate or a batch would be "
            "among what is reported: leave out --select-on reported"
        )
    return held_out()
