"""Train one model in a folder, resuming from its last checkpoint.

    FOLDER/training_config.json  identifies the training run, so that a different one cannot resume here
    FOLDER/checkpoint-120/       the last and the best checkpoint of the Trainer; removed at the end
    FOLDER/model/                the finished model in the format of transformers
    FOLDER/model/training.json   its training record, written last

If the model is finished, nothing is trained.
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
from layerwise.train.training_log import list_log_entries, total_seconds

CONFIG = "training_config.json"
PREPROCESSING = "preprocessor_config.json"
_MAY_BE_ABSENT = {"_raise_exceptions_for_missing_entries": False, "_raise_exceptions_for_connection_errors": False}

_OTHER = {"base": "it has a different base model", "data": "it has different data"}

_MAX_NAMED = 3


def run_training(
    make_trainer: Callable[[], MeasuredTrainer],
    config: Mapping[str, Any],
    folder: Path,
    *,
    variant: str,
    data_name: str,
    location: str | None = None,
) -> TrainingRecord:
    """Run or resume training in `folder`, or return the record of the finished model.

    Args:
        make_trainer: Function that creates the Trainer.
        config: `base`, `data`, `recipe` and `seed`, which identify the training run.
        folder: Folder of the training run.
        variant: Name of the variant, for the record.
        data_name: Name of the data, for the record.
        location: Base model whose image preprocessing is copied to the new model.

    Raises:
        TrainError: If the folder holds a different training run.
    """
    finished = existing_run(folder, config)
    if finished is not None:
        return finished
    trainer = make_trainer()
    write_config(folder, config)
    existing_run(folder, config)  # another process may have started in the folder
    trainer.train(resume_from_checkpoint=last_checkpoint(folder))
    model, state = folder / MODEL, trainer.state
    trainer.write(model)
    best = state.best_model_checkpoint
    record = TrainingRecord(
        **config,
        variant=variant,
        data_name=data_name,
        steps=state.global_step,
        epochs=trainer.epochs(),
        examples=trainer.examples(),
        seconds=total_seconds(state.log_history),
        best_step=steps_of(best) if best else state.global_step,
        history=list_log_entries(state.log_history),
        figures=trainer.figures(),
    )
    trainer.accelerator.wait_for_everyone()  # other processes may still read the best checkpoint
    if trainer.is_world_process_zero():
        # A model that is a single file (GGUF) has no preprocessing.
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
    """Return the training record of the model in `folder`, or None if it is not finished.

    Raises:
        TrainError: If the folder holds a different training run.
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
                f"{folder} holds a different training run: "
                f"{_OTHER.get(name) or _difference(name, results.get(name), value)}. Pass another --run, or pass "
                "--overwrite to discard it."
            )
    return finished


def _difference(name: str, before: object, now: object) -> str:
    text = [f"its {each} is {then}, got {new}" for each, then, new in _differences(name, before, now)]
    rest = len(text) - _MAX_NAMED
    return "; ".join(text[:_MAX_NAMED]) + (f"; and {rest} more" if rest > 0 else "")


def _differences(name: str, before: object, now: object) -> Iterator[tuple[str, object, object]]:
    if isinstance(before, Mapping) and isinstance(now, Mapping):
        for key in dict.fromkeys((*before, *now)):
            yield from _differences(str(key), before.get(key, "not set"), now.get(key, "not set"))
    elif before != now:
        yield name, before, now


def _stored_config(path: Path) -> dict[str, Any]:
    values = read_json_file(path)
    if not isinstance(values, dict):
        raise RunError(f"{path} is not a training config. Pass another --run, or pass --overwrite to discard it.")
    return values


def write_config(folder: Path, config: Mapping[str, Any]) -> None:
    if not (folder / CONFIG).is_file():
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(folder / CONFIG, (json.dumps(config, indent=1) + "\n").encode())


def last_checkpoint(folder: Path) -> str | None:
    complete = (path.parent for path in folder.glob(f"checkpoint-*/{TRAINER_STATE_NAME}"))
    return max(map(str, complete), key=steps_of, default=None)


def steps_of(checkpoint: str) -> int:
    return int(checkpoint.rsplit("-", 1)[1])
