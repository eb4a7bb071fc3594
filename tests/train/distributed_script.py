"""A training as `torchrun` starts it: one process of several, told by JSON on the command line what to train.

Writes `plans-RANK.json` (the plan of every pass), and `losses-RANK.json` (its loss), into the run folder. With `stop`
the training ends without warning before that step, and is then taken up again; the files are those of the second part.
"""

from __future__ import annotations

import json
import sys
import warnings
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch

import layerwise.train.methods  # noqa: F401  (registers the variants)
from layerwise.plan import Plan
from layerwise.plan.samplers import Drop, Fixed, Sampler, Shuffle
from layerwise.stack import load
from layerwise.train import training
from layerwise.train.recipe import Recipe, Settings
from layerwise.train.trainer import PlanTrainer
from layerwise.train.training import Base, train
from layerwise.train.variant import VARIANTS, Variant
from threads import use_threads
from train.tiny_models import tiny_digits, tiny_vit

DEPTH = 4
SAMPLERS: dict[str, Sampler] = {
    "shuffle": Shuffle(),
    "two layers": Fixed(Plan.of((0, 2))),
    "drop": Drop(0.5, of=Shuffle()),
    "preserve": Drop(0.5, of=Shuffle(), preserve=True),
}
SETTINGS = Settings(epochs=4, batch_size=8, evals=3, learning_rate=1e-2, schedule="constant", augmentation="crop")


class Stopped(Exception):
    """The machine was switched off."""


def train_watched(
    folder: Path, sampler: str, ranks: Any = "shared", variant: str = "plain", stop: int | None = None
) -> None:
    """Train the tiny model in `folder`, and note what every pass ran and found."""
    if stop is not None:
        with suppress(Stopped):
            _part(folder, sampler, ranks, variant, stop)
    plans, losses = _part(folder, sampler, ranks, variant, None)
    rank = torch.distributed.get_rank() if torch.distributed.is_initialized() else 0
    (folder / f"plans-{rank}.json").write_text(json.dumps(plans))
    (folder / f"losses-{rank}.json").write_text(json.dumps(losses))


def _part(folder: Path, sampler: str, ranks: Any, variant: Any, stop: int | None) -> tuple[list[str], list[float]]:
    plans: list[str] = []
    losses: list[float] = []

    class Noted(PlanTrainer):
        def training_step(self, *args: Any, **kwargs: Any) -> torch.Tensor:
            if self.state.global_step == stop:
                raise Stopped
            loss = super().training_step(*args, **kwargs)
            losses.append(loss.item())
            return loss

        def compute_loss(self, model: Any, *args: Any, **kwargs: Any) -> Any:
            if model.training:
                plans.append(str(self.stack.running))
            return super().compute_loss(model, *args, **kwargs)

    kind = VARIANTS.get(variant, Variant)
    chosen = Recipe(sampler, SETTINGS, SAMPLERS[sampler], Shuffle(), ranks=ranks, variant=kind())
    with patch.object(training, "PlanTrainer", Noted):
        train(
            Base(lambda: load(tiny_vit(DEPTH)), "tiny"), tiny_digits("crop"), chosen, 1, folder,
            arguments={"use_cpu": True},
        )  # fmt: skip
    return plans, losses


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    use_threads()
    for options in json.loads(sys.argv[1]):
        train_watched(Path(options.pop("folder")), **options)
