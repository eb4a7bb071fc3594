"""Healings as `torchrun` starts them: one process of several heals in every folder that JSON on the command line names.

An entry holds the `folder`, the `method` and, of a healing that is left unfinished, the step before which it `stop`s.
"""

from __future__ import annotations

import json
import sys
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
from threads import use_threads
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


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    use_threads()
    for each in json.loads(sys.argv[1]):
        heal(Path(each.pop("folder")), **each)
