"""Settings of trainings in phases, and of the uniform training beside them."""

from __future__ import annotations

from dataclasses import replace

from layerwise.train.phases.random_init import TINY
from layerwise.train.recipe import Settings

FROM_RANDOM = Settings(
    batch_size=8, learning_rate=1e-3, schedule="cosine", warmup=0.05, betas=(0.9, 0.95), epsilon=1e-8, weight_decay=0.1,
    evals=4,
)  # fmt: skip
"""Settings of trainings that begin from random weights; a study sweeps the rate."""

FROM_TRAINED = replace(FROM_RANDOM, learning_rate=3e-4)
"""Settings of trainings that take a trained model to a new text."""

DEFAULTS_BY_MODEL = {TINY: replace(FROM_RANDOM, learning_rate=2.4e-2, warmup=0.2)}
"""Settings that suit a model better than those for any that begins from random weights."""
