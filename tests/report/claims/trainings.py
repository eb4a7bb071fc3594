"""Trainings that never happened: surveys of models whose accuracy is planted, image by image and seed by seed.

An image is right when its difficulty, which all models share in part, is below a threshold; so the accuracy of a model
is what was planted, whatever is shared. Seeds differ by `spread`, and the orders that the batches run under by
`swing`, all seeds alike: neither goes away with more images.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.special import ndtri

from layerwise.measure.interventions.accuracy import Numbers, Predictions
from layerwise.measure.interventions.survey import Survey

Arms = Mapping[str, Mapping[str, float]]
"""Arm to condition to accuracy."""

BATCHES = 16
SHARED = 0.7
"""How much of the difficulty of an image is the same for every model."""


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

    def surveys(self, run: int, arms: Arms) -> dict[str, dict[int, Survey]]:
        draw = np.random.default_rng([run, self.seeds, self.images])
        difficulty = SHARED**0.5 * draw.standard_normal(self.images)
        orders = self.swing * draw.standard_normal(BATCHES)
        return {arm: self._arm(draw, difficulty, orders, asked) for arm, asked in arms.items()}

    def outcomes(
        self, draw: np.random.Generator, difficulty: Numbers, accuracies: Numbers, orders: Numbers | None = None
    ) -> list[Predictions]:
        shares = accuracies[:, None] + (np.zeros(BATCHES) if orders is None else orders)
        threshold = np.repeat(ndtri(np.clip(shares, 0.001, 0.999)), self.batch, axis=1)
        own = (1.0 - SHARED) ** 0.5 * draw.standard_normal(threshold.shape, dtype=np.float32)
        hits = (difficulty + own < threshold).astype(np.float64)
        return [Predictions(each, None, 1.0 - each, self._ones) for each in hits]

    def differ(self, draw: np.random.Generator, models: int) -> Numbers:
        return self.spread * (draw.exponential(size=models) - 1.0 if self.skewed else draw.standard_normal(models))

    def _arm(
        self, draw: np.random.Generator, difficulty: Numbers, orders: Numbers, asked: Mapping[str, float]
    ) -> dict[int, Survey]:
        seeds = self.differ(draw, self.seeds)
        tasks = {
            task: self.outcomes(draw, difficulty, accuracy + seeds, orders if "random" in task else None)
            for task, accuracy in asked.items()
        }
        return {seed: Survey(12, {task: of[seed] for task, of in tasks.items()}) for seed in range(self.seeds)}

    @cached_property
    def _ones(self) -> Numbers:
        return np.ones(self.images)
