"""Healings by one process of several, which are all told what to heal where.

Of a healing that is left unfinished they are told the step before which it `stop`s.
"""

from __future__ import annotations

import warnings
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch

from torch import Tensor

from layerwise.train.heal.options import HealingOptions, Method, healing_recipe
from layerwise.train.heal.trainer import HealingTrainer
from layerwise.train.recipe import Settings
from layerwise.train.training import Base, train
from train.heal.healing_models import PLAN, opened, splits_for

SETTINGS = Settings(epochs=4, batch_size=8, evals=3, learning_rate=1e-2, schedule="linear", warmup=0.2)


class Stopped(Exception):
    """The machine was switched off."""


def heal(folder: Path, method: Method, stop: int | None = None) -> None:
    """Heal the tiny decoder in `folder`, or go on where a healing stopped; without warning no further than `stop`."""

    own = HealingTrainer.training_step

    def stopping(self: HealingTrainer, *args: Any, **kwargs: Any) -> Tensor:
        if self.state.global_step == stop:
            raise Stopped
        return own(self, *args, **kwargs)

    recipe = healing_recipe("healed", SETTINGS, PLAN, HealingOptions(method=method, hidden="cosine", rank=2))
    with suppress(Stopped), patch.object(HealingTrainer, "training_step", stopping):
        train(
            Base(lambda: opened("llama"), "llama"), splits_for("llama"), recipe, 1, folder, arguments={"use_cpu": True}
        )


def heal_all(healings: dict[Path, dict[str, Any]]) -> None:
    """One healing after the other, each in its folder."""
    warnings.simplefilter("ignore")
    for folder, options in healings.items():
        heal(folder, **options)
