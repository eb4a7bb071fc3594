"""Trainings by one process of several, which are all told what to train where.

Writes `plans-RANK.json` (the plan of every pass), `losses-RANK.json` (its loss) and `read-RANK.json` (the examples that
it read) into the run folder. With `stop` the training ends without warning before that step, and is then taken up
again, unless `ends` says that somebody else will; the files are those of the last part. With `sharded` every process
holds a part of each weight (FSDP2, by the arguments of the Trainer).
"""

from __future__ import annotations

import json
import warnings
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch.distributed.fsdp import FSDPModule

from layerwise.plan import Plan
from layerwise.plan.samplers import Drop, Fixed, Sampler, Shuffle
from layerwise.stack import load
from layerwise.train import training
from layerwise.train.data_order import ReproducibleDataset
from layerwise.train.methods import Options, recipe
from layerwise.train.recipe import Recipe, Settings
from layerwise.train.trainer import PlanTrainer
from layerwise.train.training import Base, train
from train.sharding_on_processors import sharding_on_processors
from train.tiny_models import tiny_digits, tiny_vit

DEPTH = 4
SAMPLERS: dict[str, Sampler] = {
    "two layers": Fixed(Plan.of((0, 2))),
    "preserve": Drop(0.5, of=Shuffle(), preserve=True),
}
"""Draws that no method has by itself."""

SETTINGS = Settings(
    epochs=2, batch_size=8, evals=2, learning_rate=1e-2, schedule="constant", augmentation="crop", from_scratch_factor=1
)
SHARDED = {"fsdp": True, "fsdp_config": {"version": 2}}


class Stopped(Exception):
    """The machine was switched off."""


@dataclass
class Noted:
    """What one part of a training did."""

    plans: list[str] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    read: list[int] = field(default_factory=list)


def recipe_of(method: str, ranks: Any, **settings: Any) -> Recipe:
    """That of a method, or one that draws by a sampler of this file."""
    chosen = replace(SETTINGS, **settings)
    if method in SAMPLERS:
        return Recipe(method, chosen, SAMPLERS[method], Shuffle(), ranks=ranks)
    made = recipe(method, Options(chosen, drop_rate=0.4), DEPTH)
    return replace(made, settings=replace(made.settings, evals=chosen.evals), ranks=ranks)


def train_watched(
    folder: Path,
    method: str,
    ranks: Any = "shared",
    stop: int | None = None,
    *,
    ends: bool = False,
    sharded: bool = False,
    **settings: Any,
) -> None:
    """Train the tiny model in `folder`, and note what every pass ran and found."""
    chosen = recipe_of(method, ranks, **settings)
    noted = Noted()
    if stop is not None:
        with suppress(Stopped):
            _part(folder, chosen, noted, stop, sharded)
    if not ends:
        noted = Noted()
        _part(folder, chosen, noted, None, sharded)
    rank = torch.distributed.get_rank() if torch.distributed.is_initialized() else 0
    folder.mkdir(exist_ok=True)
    for name, values in vars(noted).items():
        (folder / f"{name}-{rank}.json").write_text(json.dumps(values))


def _part(folder: Path, chosen: Recipe, noted: Noted, stop: int | None, sharded: bool) -> None:
    class Watched(PlanTrainer):
        def training_step(self, *args: Any, **kwargs: Any) -> torch.Tensor:
            if self.state.global_step == stop:
                raise Stopped
            assert isinstance(self.stack.block(1), FSDPModule) == sharded
            loss = super().training_step(*args, **kwargs)
            noted.losses.append(loss.item())
            return loss

        def compute_loss(self, model: Any, *args: Any, **kwargs: Any) -> Any:
            if model.training:
                noted.plans.append(str(self.stack.running))
            return super().compute_loss(model, *args, **kwargs)

    class Read(ReproducibleDataset):
        def __getitems__(self, indices: Any) -> Any:
            noted.read.extend(indices)
            return super().__getitems__(indices)

    places = sharding_on_processors() if sharded else nullcontext()
    with places, patch.object(training, "PlanTrainer", Watched), patch.object(training, "ReproducibleDataset", Read):
        train(
            Base(lambda: load(tiny_vit(DEPTH)), "tiny"), tiny_digits("crop", train=21, validation=69), chosen, 1,
            folder, arguments={"use_cpu": True, **(SHARDED if sharded else {})},
        )  # fmt: skip


def train_all(trainings: dict[Path, dict[str, Any]]) -> None:
    """One training after the other, each in its folder."""
    warnings.simplefilter("ignore")
    for folder, options in trainings.items():
        train_watched(folder, **options)
