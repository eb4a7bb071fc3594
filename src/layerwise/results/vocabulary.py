"""The names that rows are written with and read by: measures, metrics, arms and conditions, each in one place.

What writes a row and what reads it both import its names from here, so that no name is declared twice and none is
spelled in two ways. A name that one file alone uses stays in that file.
"""

from __future__ import annotations

# Every kind of run

ALL = "all"
"""The task that is the whole text."""

# Trainings: by `arm` and `seed`; the `amount` of a loss is its step

TRAINING = "training"
TRAIN_LOSS, VALIDATION_LOSS = "train_loss", "validation_loss"

# Times of passes: of each `plan`, in a setting (`condition`: the phase, the batch and the context)

TIME = "time"
MILLISECONDS, RATIO = "ms", "ratio"

# Healing: `arm` is a way of training, or one of the models below

HEALING, HEALING_CONTRAST, HEALING_WINDOW, HEALING_RATE, HEALING_COST = (
    "healing", "healing_contrast", "healing_window", "healing_rate", "healing_cost",
)  # fmt: skip
UNTOUCHED, PRUNED, WHOLE, RANDOM, SKIP = "untouched", "pruned", "whole", "random", "skip-"
BEFORE, HEALED = "before", "healed"
"""Conditions: a model before it is trained, and after."""
