"""Simulated trainings with planted accuracies: an image is right if its difficulty, partly shared by models,
is below a threshold. `spread` is over seeds and `swing` over orders: more images reduce neither."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.special import ndtri

from layerwise.measure.interventions.accuracy import Numbers, Predictions
from layerwise.measure.interventions.survey import Survey

Accuracies = Mapping[str, Mapping[str, float]]
"""Variant to condition to accuracy."""

BATCHES = 16
SHARED = 0.7
"""Share of the difficulty of an image that all models have in common."""


@dataclass(frozen=True)
class World:
    seeds: int = 5
    images: int = 960
    spread: float = 0.01
    swing: float = 0.01
    skewed: bool = False

    @property
    def batch(self) -> int:
        return self.images // BATCHES

    def surveys(self, run: int, variants: Accuracies) -> dict[str, dict[int, Survey]]:
        draw = np.random.default_rng([run, self.seeds, self.images])
        difficulty = SHARED**0.5 * draw.standard_normal(self.images)
        orders = self.swing * draw.standard_normal(BATCHES)
        return {
            variant: self._make_surveys(draw, difficulty, orders, accuracies_by_task)
            for variant, accuracies_by_task in variants.items()
        }

    def outcomes(
        self, draw: np.random.Generator, difficulty: Numbers, accuracies: Numbers, orders: Numbers | None = None
    ) -> list[Predictions]:
        shares = accuracies[:, None] + (np.zeros(BATCHES) if orders is None else orders)
        threshold = np.repeat(ndtri(np.clip(shares, 0.001, 0.999)), self.batch, axis=1)
        own = (1.0 - SHARED) ** 0.5 * draw.standard_normal(threshold.shape, dtype=np.float32)
        hits = (difficulty + own < threshold).astype(np.float64)
        return [Predictions(each, None, 1.0 - each, self._ones) for each in hits]

    def draw_seed_effects(self, draw: np.random.Generator, models: int) -> Numbers:
        return self.spread * (draw.exponential(size=models) - 1.0 if self.skewed else draw.standard_normal(models))

    def _make_surveys(
        self, draw: np.random.Generator, difficulty: Numbers, orders: Numbers, accuracies_by_task: Mapping[str, float]
    ) -> dict[int, Survey]:
        seeds = self.draw_seed_effects(draw, self.seeds)
        tasks = {
            task: self.outcomes(draw, difficulty, accuracy + seeds, orders if "random" in task else None)
            for task, accuracy in accuracies_by_task.items()
        }
        return {seed: Survey(12, {task: of[seed] for task, of in tasks.items()}) for seed in range(self.seeds)}

    @cached_property
    def _ones(self) -> Numbers:
        return np.ones(self.images)
