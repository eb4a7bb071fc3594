"""One training into a folder: claimed by what is trained in it, resumed from its last checkpoint, emptied at the end.

    FOLDER/training_config.json  what this training is, so that no other goes on in its folder
    FOLDER/checkpoint-120/       the Trainer's, the last one and the best one; gone when the training is done
    FOLDER/model/                the finished model, as plain transformers loads it
    FOLDER/model/training.json   its training record, written last

The same call on the same folder goes on from the last checkpoint, and does nothing when the model is finished.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from transformers.trainer import TRAINER_STATE_NAME
from transformers.utils import cached_file

from layerwise.errors import RunError, TrainError
from layerwise.results.checked import read_json_file
from layerwise.results.run import write_whole
from layerwise.results.training_record import MODEL, TrainingRecord
from layerwise.train.measured import MeasuredTrainer
from layerwise.train.training_log import moments, seconds_of

CONFIG = "training_config.json"
PREPROCESSING = "preprocessor_config.json"
_MAY_BE_ABSENT = {"_raise_exceptions_for_missing_entries": False, "_raise_exceptions_for_connection_errors": False}

_OTHER = {"base": "it begins from another model", "data": "it learns from other examples"}

_NAMED = 3


def run_training(
    make_trainer: Callable[[], MeasuredTrainer],
    config: Mapping[str, Any],
    folder: Path,
    *,
    arm: str,
    data_name: str,
    location: str | None = None,
) -> TrainingRecord:
    """Run a training in `folder`, or resume it; return the training record of its model.

    `config` identifies it by `base`, `data`, `recipe` and `seed`. The model of `arm`, trained on `data_name`, gets the
    preprocessing of the base at `location`. Raises `TrainError` if the folder holds another training, and what
    `make_trainer` and the training raise; the folder is claimed once the Trainer is made.
    """
    finished = existing_run(folder, config)
    if finished is not None:
        return finished
    trainer = make_trainer()
    write_config(folder, config)
    existing_run(folder, config)  # another process may have claimed the folder meanwhile
    trainer.train(resume_from_checkpoint=last_checkpoint(folder))
    model, state = folder / MODEL, trainer.state
    trainer.write(model)
    best = state.best_model_checkpoint
    record = TrainingRecord(
        **config,
        arm=arm,
        data_name=data_name,
        steps=state.global_step,
        epochs=trainer.epochs(),
        examples=trainer.examples(),
        seconds=seconds_of(state.log_history),
        best_step=steps_of(best) if best else state.global_step,
        history=moments(state.log_history),
        figures=trainer.figures(),
    )
    trainer.accelerator.wait_for_everyone()  # others may still read the best checkpoint
    if trainer.is_world_process_zero():
        # Nothing lies beside the weights in a model that is one file, such as a GGUF.
        if location is not None and not Path(location).is_file():
            settings = cached_file(location, PREPROCESSING, **_MAY_BE_ABSENT)
            if settings is not None:
                shutil.copyfile(settings, model / PREPROCESSING)
        record.write(model)
        for checkpoint in folder.glob("checkpoint-*"):
            shutil.rmtree(checkpoint)
    trainer.accelerator.wait_for_everyone()
    return record


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
    text = [
        f"its {each} is {then}, and {wanted} was asked for" for each, then, wanted in _differences(name, before, now)
    ]
    rest = len(text) - _NAMED
    return "; ".join(text[:_NAMED]) + (f"; and {rest} more" if rest > 0 else "")


def _differences(name: str, before: object, now: object) -> Iterator[tuple[str, object, object]]:
    if isinstance(before, Mapping) and isinstance(now, Mapping):
        for key in dict.fromkeys((*before, *now)):
            yield from _differences(str(key), before.get(key, "nothing"), now.get(key, "nothing"))
    elif before != now:
        yield name, before, now


def _stored_config(path: Path) -> dict[str, Any]:
    values = read_json_file(path)
    if not isinstance(values, dict):
        raise RunError(f"{path} does not say what is trained there; choose another run folder, or --overwrite")
    return values


def write_config(folder: Path, config: Mapping[str, Any]) -> None:
    if not (folder / CONFIG).is_file():
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(folder / CONFIG, (json.dumps(config, indent=1) + "\n").encode())


def last_checkpoint(folder: Path) -> str | None:
    whole = (path.parent for path in folder.glob(f"checkpoint-*/{TRAINER_STATE_NAME}"))
    return max(map(str, whole), key=steps_of, default=None)


def steps_of(checkpoint: str) -> int:
    return int(checkpoint.rsplit("-", 1)[1])
