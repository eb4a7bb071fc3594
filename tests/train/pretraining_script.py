"""Pretraining by one process of several, which are all told what to train where.

Writes `losses-RANK.json` into the run folder: what `training_step` gave in every pass. With `stop` the training ends
without warning before that step, and is then taken up again; the file is that of the second part.
"""

from __future__ import annotations

import json
import warnings
from contextlib import nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from torch.distributed.fsdp import FSDPModule

from layerwise.train.pretrain import trainer
from train.distributed_script import SHARDED
from train.pretrain.test_pretraining import RECIPE, Stopped, run
from train.sharding_on_processors import sharding_on_processors

WATCHED = replace(RECIPE, dropout=0.0)


def train_watched(
    folder: Path, stop: int | None = None, *, ends: bool = False, sharded: bool = False, **changes: Any
) -> None:
    """Pretrain the tiny model in `folder` and keep the loss of every pass; `ends` leaves what was stopped to others."""
    losses: list[float] = []
    if stop is not None:
        with suppress(Stopped):
            _part(folder, stop, changes, sharded)
    if not ends:
        losses = _part(folder, None, changes, sharded)
    rank = torch.distributed.get_rank() if torch.distributed.is_initialized() else 0
    (folder / f"losses-{rank}.json").write_text(json.dumps(losses))


def _part(folder: Path, stop: int | None, changes: dict[str, Any], sharded: bool) -> list[float]:
    losses: list[float] = []

    class Noted(trainer.PretrainingTrainer):
        def training_step(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Tensor:
            if self.state.global_step == stop:
                raise Stopped
            assert isinstance(model, FSDPModule) == sharded
            losses.append((loss := super().training_step(model, inputs, *args, **kwargs)).item())
            return loss

    with patch.object(trainer, "PretrainingTrainer", Noted), sharding_on_processors() if sharded else nullcontext():
        run(folder, replace(WATCHED, **changes), **(SHARDED if sharded else {}))
    return losses


def train_all(trainings: dict[Path, dict[str, Any]]) -> None:
    """One training after the other, each in its folder."""
    warnings.simplefilter("ignore")
    for folder, options in trainings.items():
        train_watched(folder, **options)
