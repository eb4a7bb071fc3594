"""The pedigree of a trained model: what it was refined from, how, and on what; `training.json` beside its weights.

A folder with a pedigree is an ordinary model folder that plain transformers loads. The file is written last, so a
folder without one is a training that did not end.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from layerwise.results.checked_json import read, value_of
from layerwise.results.run import write_whole

FILE = "training.json"
RETRAINED = "retrained"
"""The arm of models that were refined for fewer layers than they have; `retrained-6` for those with six."""

MODEL = "model"
"""The folder of the finished model inside that of its training."""


@dataclass(frozen=True, slots=True)
class Moment:
    """A loss noted after `step` optimiser steps, in nats: of training since the note before, or of validation."""

    step: int
    kind: str
    loss: float


@dataclass(frozen=True, slots=True)
class Pedigree:
    """Where a trained model comes from.

    `base` is the weight hash of the model it was refined from, `data` the digest of the splits, `recipe` everything
    that decided the training, `examples` how many the training read. `best_step` is the step whose checkpoint was
    kept, `seconds` the training time over all sittings, validation included. `figures` are further numbers by name that
    a kind of training has to tell, such as the tokens that a pretraining saw.
    """

    arm: str
    seed: int
    base: str
    data: str
    data_name: str
    recipe: Mapping[str, Any]
    steps: int
    epochs: float
    examples: int
    seconds: float
    best_step: int
    history: tuple[Moment, ...] = field(default=(), repr=False)
    figures: Mapping[str, float] = field(default_factory=dict)

    def write(self, folder: Path) -> None:
        """Put the pedigree beside the weights, whole or not at all."""
        write_whole(folder / FILE, (json.dumps(asdict(self), indent=1) + "\n").encode())

    @classmethod
    def read(cls, folder: Path) -> Pedigree | None:
        """The pedigree in `folder`, or `None` for a model that has none. Raises `RunError` if it cannot be read."""
        path = folder / FILE
        return value_of(cls, read(path), str(path)) if path.exists() else None


def refined_at(arm: str) -> int | None:
    """The number of layers that the models of an arm were refined for, or `None` for those that have all.

    >>> refined_at("retrained-6"), refined_at("layershuffle")
    (6, None)
    """
    found = re.fullmatch(rf"{RETRAINED}-(\d{{1,9}})", arm, re.ASCII)
    return None if found is None else int(found[1])


def trained_models(run: Path) -> tuple[Path, ...]:
    """The folders of the finished models in a training run, `RUN/ARM/seed-N/model`, sorted by arm and seed."""
    found = [path.parent for path in run.glob(f"*/seed-*/{MODEL}/{FILE}") if _seed(path.parent) is not None]
    return tuple(sorted(found, key=lambda model: (model.parts[-3], _seed(model) or 0)))


def _seed(model: Path) -> int | None:
    """The seed in the path of a model; `None` where a folder is called otherwise, which no training has written."""
    found = re.fullmatch(r"seed-(\d{1,18})", model.parts[-2], re.ASCII)
    return None if found is None else int(found[1])
