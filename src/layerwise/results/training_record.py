"""The training record of a model, which is the file `training.json` next to the weights.

It is written last. If a model folder does not contain it, training has not finished.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from layerwise.results.checked import read_json_file, to_dataclass
from layerwise.results.run import write_whole

FILE = "training.json"

RETRAINED = "retrained"
"""Prefix of the variant of models that were trained for fewer layers: `retrained-6` is for six layers."""

MODEL = "model"
"""Name of the folder of the finished model, inside the folder of its training run."""


@dataclass(frozen=True, slots=True)
class LogEntry:
    """A loss in nats that was logged after `step` optimizer steps.

    `kind` tells whether it is the validation loss or the mean training loss since the last entry.
    """

    step: int
    kind: str
    loss: float


@dataclass(frozen=True, slots=True)
class TrainingRecord:
    """The provenance of a trained model.

    `base` is the hash of the initial weights, `data` the hash of the data splits, and `recipe` has all training
    settings. `examples` is the number of examples read, and `best_step` the step at which the saved checkpoint was
    taken. `seconds` is the training time, with validation, of all sessions. `figures` has other numbers by name, such
    as the number of pretraining tokens.
    """

    variant: str
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
    history: tuple[LogEntry, ...] = field(default=(), repr=False)
    figures: Mapping[str, float] = field(default_factory=dict)

    @property
    def validation_losses(self) -> list[float]:
        return [moment.loss for moment in self.history if moment.kind == "validation"]

    def write(self, folder: Path) -> None:
        write_whole(folder / FILE, (json.dumps(asdict(self), indent=1) + "\n").encode())

    @classmethod
    def read(cls, folder: Path) -> TrainingRecord | None:
        path = folder / FILE
        if not path.exists():
            return None
        return to_dataclass(cls, read_json_file(path), str(path))


def parse_refined_depth(variant: str) -> int | None:
    """Return the number of layers for which a variant was retrained, or None if it is another variant.

    >>> parse_refined_depth("retrained-6"), parse_refined_depth("layershuffle")
    (6, None)
    """
    match = re.fullmatch(rf"{RETRAINED}-(\d{{1,9}})", variant, re.ASCII)
    return None if match is None else int(match[1])


def find_trained_models(run: Path) -> tuple[Path, ...]:
    models = [path.parent for path in run.glob(f"*/seed-*/{MODEL}/{FILE}") if _seed(path.parent) is not None]
    return tuple(sorted(models, key=lambda model: (model.parts[-3], _seed(model) or 0)))


def _seed(model: Path) -> int | None:
    match = re.fullmatch(r"seed-(\d{1,18})", model.parts[-2], re.ASCII)
    return None if match is None else int(match[1])
