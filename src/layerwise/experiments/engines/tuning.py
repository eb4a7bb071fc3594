"""Learning rates, and other settings, that validation chooses: of each arm the one whose loss is the least.

RUN/pilot/ARM@RATE/seed-1000           one trial
RUN/pilot/ARM@RATE,BATCH/seed-1000     one of several sizes of batch too

A trial has a seed of its own and none of the examples that are reported. Rates are tried beyond those that were named
while the best of them is at an end. Sizes of batch are what memory allows, so that no others are tried.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Generic, TypeVar

from layerwise.experiments.engines.trainings import RecipeTraining
from layerwise.results.rows import Score
from layerwise.results.training_record import TrainingRecord
from layerwise.train.phases.metrics import best_rate
from layerwise.train.recipe import Recipe

PILOT = "pilot"
"""The folder of the trials in that of the run."""

FIRST_SWEEP_SEED = 1_000
"""The first seed of the sweep, that of the model that importance is measured on. The seeds of the arms are below it."""
BEYOND = 4
"""Rates that a sweep tries beyond those it was given, at most, while the best is at their end."""

K = TypeVar("K", bound=Hashable)


def beyond(losses: Mapping[float, float]) -> float | None:
    """The learning rate to try next, where the best of several is the least or the greatest: as far from it as its
    neighbour is, as a ratio; `None` where the best lies between others, or where one rate was meant.

    >>> beyond({1e-3: 5.0, 2e-3: 4.0, 4e-3: 3.0}), beyond({1e-3: 5.0, 2e-3: 4.0, 4e-3: 4.5}), beyond({1e-3: 5.0})
    (0.008, None, None)
    """
    rates = sorted(losses)
    best = min(rates, key=losses.__getitem__)
    if len(rates) < 2 or rates[0] < best < rates[-1]:
        return None
    neighbour = rates[1] if best == rates[0] else rates[-2]
    return float(f"{best * best / neighbour:.6g}")


class RateSweep(Generic[K]):
    """The least validation loss of everything that is tuned at every learning rate that was tried."""

    def __init__(self) -> None:
        self.losses: dict[K, dict[float, float]] = {}

    def due(self, key: K, first: Sequence[float]) -> Iterator[float]:
        """The rates to try, one after the other, each once the loss of the one before is noted.

        Those of `first`, and beyond them while the best is at an end; one rate alone is tried as it is.
        """
        yield from first
        for _ in range(BEYOND if len(first) > 1 else 0):
            further = beyond(self.losses[key])
            if further is None:
                return
            yield further

    def note(self, key: K, rate: float, record: TrainingRecord) -> None:
        """Note how a trial ended."""
        losses = [entry.loss for entry in record.history if entry.kind == "validation"]
        self.losses.setdefault(key, {})[rate] = min(losses)

    def best(self, key: K) -> float:
        """The rate of the least loss."""
        return best_rate(self.losses[key])


def trial(recipe: Recipe, *settings: float) -> RecipeTraining:
    """The trial of a recipe, which is called by the `settings` that it has."""
    label = f"{recipe.arm}@{','.join(f'{each:g}' for each in settings)}"
    return replace(
        RecipeTraining.of(recipe, FIRST_SWEEP_SEED), folder=f"{PILOT}/{label}/seed-{FIRST_SWEEP_SEED}", label=label
    )


def tried_rows(measure: str, arm: str, losses: Mapping[float, float], batch: int | None = None) -> Iterator[Score]:
    """The validation loss at every rate: the `amount` is the rate, and `other` the size of batch, where it is tuned."""
    for rate, loss in sorted(losses.items()):
        yield Score(measure, "validation_nll", loss, arm=arm, amount=rate, other=batch)


def chosen_row(measure: str, arm: str, losses: Mapping[float, float], batch: int | None = None) -> Score:
    """Which rate is the best, and whether it is at an end of those that were tried."""
    best = best_rate(losses)
    at_end = best in (min(losses), max(losses))
    return Score(measure, "chosen_at_end" if at_end else "chosen", 1.0, arm=arm, amount=best, other=batch)
