"""The folder of one training: claimed by what is trained in it, resumed from its last checkpoint, emptied at the end.

FOLDER/asked.json         what this training is, so that no other goes on in its folder
FOLDER/checkpoint-120/    the Trainer's; gone when the training is done
FOLDER/model/             the finished model, with its pedigree
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from transformers.trainer import TRAINER_STATE_NAME

from layerwise.errors import RunError, TrainError
from layerwise.results.checked_json import read
from layerwise.results.pedigree import MODEL, Pedigree
from layerwise.results.run import write_whole

ASKED = "asked.json"


_OTHER = {"base": "it begins from another model", "data": "it learns from other examples"}
"""What a refusal says of a hash that is not the one asked for."""

_TOLD = 3
"""Settings that a refusal names, of those that differ."""


def hold(folder: Path, asked: Mapping[str, Any]) -> Pedigree | None:
    """Refuse a folder that is another training's, else claim it; the pedigree of the model if it is finished."""
    finished = occupant(folder, asked)
    if finished is None:
        claim(folder, asked)
    return finished


def occupant(folder: Path, asked: Mapping[str, Any]) -> Pedigree | None:
    """Refuse a folder that is another training's; the pedigree of the model if it is finished. Nothing is written."""
    finished = Pedigree.read(folder / MODEL)
    claimed = folder / ASKED
    if finished is not None:
        found = {name: getattr(finished, name) for name in asked}
    else:
        found = _claimed(claimed) if claimed.exists() else dict(asked)
    for name, value in asked.items():
        if found.get(name) != value:
            raise TrainError(
                f"{folder} holds another training: {_OTHER.get(name) or _difference(name, found.get(name), value)}; "
                "choose another run folder, or discard this one with --fresh"
            )
    return finished


def _difference(name: str, before: object, now: object) -> str:
    """Which settings differ, as a clause with their values."""
    told = [f"its {each} is {then}, and {asked} was asked for" for each, then, asked in _differences(name, before, now)]
    rest = len(told) - _TOLD
    return "; ".join(told[:_TOLD]) + (f"; and {rest} more" if rest > 0 else "")


def _differences(name: str, before: object, now: object) -> Iterator[tuple[str, object, object]]:
    """Every value that differs, by the name that it has inside; `nothing` stands for one that is not there."""
    if isinstance(before, Mapping) and isinstance(now, Mapping):
        for key in dict.fromkeys((*before, *now)):
            yield from _differences(str(key), before.get(key, "nothing"), now.get(key, "nothing"))
    elif before != now:
        yield name, before, now


def _claimed(path: Path) -> dict[str, Any]:
    """What was claimed in the file at `path`. Raises `RunError` for what is not JSON or no object."""
    found = read(path)
    if not isinstance(found, dict):
        raise RunError(f"{path} does not say what is trained there; choose another run folder, or --fresh")
    return found


def claim(folder: Path, asked: Mapping[str, Any]) -> None:
    """Write down what is trained in the folder."""
    if not (folder / ASKED).is_file():
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(folder / ASKED, (json.dumps(asked, indent=1) + "\n").encode())


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
