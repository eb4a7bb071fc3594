"""The folder of one training: claimed by what is trained in it, resumed from its last checkpoint, emptied at the end.

FOLDER/training_config.json  what this training is, so that no other goes on in its folder
FOLDER/checkpoint-120/       the Trainer's; gone when the training is done
FOLDER/model/                the finished model, with its training record
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from transformers.trainer import TRAINER_STATE_NAME

from layerwise.errors import RunError, TrainError
from layerwise.results.checked import read
from layerwise.results.run import write_whole
from layerwise.results.training_record import MODEL, TrainingRecord

CONFIG = "training_config.json"


_OTHER = {"base": "it begins from another model", "data": "it learns from other examples"}
"""What a refusal says of a hash that differs."""

_NAMED = 3
"""Settings that a refusal names, of those that differ."""


def acquire(folder: Path, config: Mapping[str, Any]) -> TrainingRecord | None:
    """Refuse a folder that is another training's, else claim it; the training record of the model if it is finished."""
    finished = existing_run(folder, config)
    if finished is None:
        write_config(folder, config)
    return finished


def existing_run(folder: Path, config: Mapping[str, Any]) -> TrainingRecord | None:
    """Refuse a folder that is another training's; the training record of the model if it is finished. Nothing is
    written.
    """
    finished = TrainingRecord.read(folder / MODEL)
    path = folder / CONFIG
    if finished is not None:
        results = {name: getattr(finished, name) for name in config}
    else:
        results = _stored_config(path) if path.exists() else dict(config)
    for name, value in config.items():
        if results.get(name) != value:
            raise TrainError(
                f"{folder} holds another training: {_OTHER.get(name) or _difference(name, results.get(name), value)}; "
                "choose another run folder, or discard this one with --overwrite"
            )
    return finished


def _difference(name: str, before: object, now: object) -> str:
    """Which settings differ, as a clause with their values."""
    text = [
        f"its {each} is {then}, and {wanted} was asked for" for each, then, wanted in _differences(name, before, now)
    ]
    rest = len(text) - _NAMED
    return "; ".join(text[:_NAMED]) + (f"; and {rest} more" if rest > 0 else "")


def _differences(name: str, before: object, now: object) -> Iterator[tuple[str, object, object]]:
    """Every value that differs, by the name that it has inside; `nothing` stands for one that is not there."""
    if isinstance(before, Mapping) and isinstance(now, Mapping):
        for key in dict.fromkeys((*before, *now)):
            yield from _differences(str(key), before.get(key, "nothing"), now.get(key, "nothing"))
    elif before != now:
        yield name, before, now


def _stored_config(path: Path) -> dict[str, Any]:
    """What was claimed in the file at `path`. Raises `RunError` for what is not JSON or no object."""
    values = read(path)
    if not isinstance(values, dict):
        raise RunError(f"{path} does not say what is trained there; choose another run folder, or --overwrite")
    return values


def write_config(folder: Path, config: Mapping[str, Any]) -> None:
    """Write down what is trained in the folder."""
    if not (folder / CONFIG).is_file():
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(folder / CONFIG, (json.dumps(config, indent=1) + "\n").encode())


def last_checkpoint(folder: Path) -> str | None:
    """The checkpoint with the most steps among those that are whole: a Trainer writes its state last."""
    whole = (path.parent for path in folder.glob(f"checkpoint-*/{TRAINER_STATE_NAME}"))
    return max(map(str, whole), key=steps_of, default=None)


def steps_of(checkpoint: str) -> int:
    """The steps that a checkpoint was written after, by its name."""
    return int(checkpoint.rsplit("-", 1)[1])


def discard_checkpoints(folder: Path) -> None:
    """Remove what a finished training no longer needs."""
    for checkpoint in folder.glob("checkpoint-*"):
        shutil.rmtree(checkpoint)
