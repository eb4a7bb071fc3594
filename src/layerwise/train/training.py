"""One training: from a base model, splits and a recipe to an ordinary model folder, through kills and restarts.

    FOLDER/asked.json         what this training is, so that no other goes on in its folder
    FOLDER/checkpoint-120/    the Trainer's, the last one and the best one; gone when the training is done
    FOLDER/model/             the model with the least validation loss, as plain transformers loads it
    FOLDER/model/training.json    its pedigree, written last

The same call on the same folder goes on from the last checkpoint, and does nothing when the model is finished.
"""

from __future__ import annotations

import json
import math
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformers import PrinterCallback, TrainerCallback, TrainingArguments, set_seed
from transformers.trainer import TRAINER_STATE_NAME
from transformers.utils import cached_file

from layerwise.data.splits import Splits
from layerwise.errors import TrainError
from layerwise.plan.samplers import Draws
from layerwise.results.pedigree import MODEL, Moment, Pedigree
from layerwise.results.run import write_whole
from layerwise.stack import Stack
from layerwise.train import position, prediction
from layerwise.train.recipe import Recipe, Settings
from layerwise.train.replay import Epochs, ReadingOrder, Replayed
from layerwise.train.trainer import PlanTrainer

ASKED = "asked.json"
PREPROCESSING = "preprocessor_config.json"
_MAY_BE_ABSENT = {"_raise_exceptions_for_missing_entries": False, "_raise_exceptions_for_connection_errors": False}
_PRECISION = {"float32": {}, "bfloat16": {"bf16": True}, "float16": {"fp16": True}}


@dataclass(frozen=True, slots=True)
class Base:
    """The model that trainings begin from: how to open it anew, the hash of its weights, and where they are from.

    Every training opens its own copy, since a training changes it.
    """

    open: Callable[[], Stack]
    weights: str
    place: str | None = None


Progress = Callable[[int, int, float | None], None]
"""Told the step, all steps, and the last training loss that was noted."""


def train(
    base: Base,
    splits: Splits,
    recipe: Recipe,
    seed: int,
    folder: Path,
    *,
    progress: Progress | None = None,
    arguments: Mapping[str, Any] | None = None,
) -> Pedigree:
    """Train `recipe` with `seed` into `folder`, or carry on what is there; returns the pedigree of the model.

    `arguments` are further `TrainingArguments` (trackers, FSDP, workers, ...), which win over the recipe's. Raises
    `TrainError` when the folder holds another training, or at a loss that is not finite (see `PlanTrainer`).
    """
    finished = _hold(folder, {"base": base.weights, "data": splits.digest, "recipe": recipe.to_json(), "seed": seed})
    if finished is not None:
        return finished
    set_seed(seed)
    stack = base.open()
    if recipe.from_scratch:
        _redraw(stack)
    asked = None
    if recipe.variant == "position":
        position.attach(stack, recipe.position)
    elif recipe.variant == "predict":
        asked = prediction.attach(stack, recipe.prediction)
    examples = Replayed(splits.train, seed)
    trainer = PlanTrainer(
        stack=stack,
        draws=Draws(recipe.sampler, stack.depth, seed, stream=_stream(recipe)),
        validation=Draws(recipe.validation, stack.depth, 0, stream="validation"),
        prediction=asked,
        order=ReadingOrder(examples, alike=None if splits.classes else recipe.settings.batch),
        args=_arguments(recipe.settings, recipe, len(splits.train), seed, folder, dict(arguments or {})),
        data_collator=splits.collate,
        train_dataset=examples,
        eval_dataset=splits.validation,
        callbacks=[_Clock(progress), Epochs(examples)],
    )
    trainer.remove_callback(PrinterCallback)
    trainer.train(resume_from_checkpoint=_last_checkpoint(folder))
    return _publish(trainer, stack, base, splits, recipe, seed, folder)


def _hold(folder: Path, asked: Mapping[str, Any]) -> Pedigree | None:
    """Refuse a folder that is another training's, else claim it; the pedigree of the model if it is finished."""
    finished = Pedigree.read(folder / MODEL)
    claim = folder / ASKED
    if finished is not None:
        found = {name: getattr(finished, name) for name in asked}
    else:
        found = json.loads(claim.read_text()) if claim.is_file() else dict(asked)
    for name, value in asked.items():
        if found[name] != value:
            raise TrainError(
                f"{folder} holds another training: its {name} is not the one asked for; "
                "choose another run folder, or discard this one with --fresh"
            )
    if finished is None and not claim.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(claim, (json.dumps(asked, indent=1) + "\n").encode())
    return finished


def _last_checkpoint(folder: Path) -> str | None:
    """The checkpoint with the most steps among those that are whole: a Trainer writes its state last."""
    whole = (path.parent for path in folder.glob(f"checkpoint-*/{TRAINER_STATE_NAME}"))
    return max(map(str, whole), key=_steps_of, default=None)


def _steps_of(checkpoint: str) -> int:
    return int(checkpoint.rsplit("-", 1)[1])


def _redraw(stack: Stack) -> None:
    """New random weights, drawn as the model's own class draws them."""
    fresh = type(stack.model)(stack.model.config)
    stack.model.load_state_dict(fresh.state_dict())


def _stream(recipe: Recipe) -> str:
    """Draws that processes share, or draws that each makes for itself."""
    if recipe.ranks == "together":
        return "training"
    from accelerate import PartialState

    return f"training/{PartialState().process_index}"


def _arguments(
    settings: Settings, recipe: Recipe, examples: int, seed: int, folder: Path, more: dict[str, Any]
) -> TrainingArguments:
    from accelerate import PartialState

    processes = PartialState(cpu=bool(more.get("use_cpu", False))).num_processes
    piece, rest = divmod(settings.batch, settings.accumulation * processes)
    if rest or piece == 0:
        raise TrainError(
            f"a batch of {settings.batch} does not fall into equal pieces for {processes} processes x "
            f"{settings.accumulation} passes; write a batch that is a multiple of {settings.accumulation * processes}"
        )
    steps = max(1, math.ceil(settings.epochs * math.ceil(examples / settings.batch)))
    every = max(1, math.ceil(steps / settings.checks))
    found = TrainingArguments(
        **{
            "output_dir": str(folder),
            "max_steps": steps,
            "per_device_train_batch_size": piece,
            "per_device_eval_batch_size": max(piece, 64),
            "gradient_accumulation_steps": settings.accumulation,
            "learning_rate": settings.learning_rate,
            "lr_scheduler_type": settings.schedule,
            "warmup_steps": round(settings.warmup * steps),
            "adam_beta1": settings.betas[0],
            "adam_beta2": settings.betas[1],
            "adam_epsilon": settings.epsilon,
            "weight_decay": settings.weight_decay,
            "max_grad_norm": settings.gradient_norm,
            "logging_steps": max(1, every // 4),
            "eval_strategy": "steps",
            "eval_steps": every,
            "save_strategy": "steps",
            "save_steps": every,
            "save_total_limit": 2,
            "load_best_model_at_end": True,
            "metric_for_best_model": "eval_loss",
            "greater_is_better": False,
            "seed": seed,
            "ddp_find_unused_parameters": recipe.leaves_out if processes > 1 else None,
            "report_to": "none",
            "disable_tqdm": True,
            "remove_unused_columns": False,
            "label_names": ["labels"],
            "dataloader_pin_memory": False,
            **_PRECISION[settings.precision],
            **({"gradient_checkpointing": True} if settings.gradient_checkpointing else {}),
            **more,
        }
    )
    # One process drives one device: torch's DataParallel would copy the blocks away from their plans. Use torchrun.
    found._n_gpu = min(1, found.n_gpu)
    return found


def _publish(
    trainer: PlanTrainer, stack: Stack, base: Base, splits: Splits, recipe: Recipe, seed: int, folder: Path
) -> Pedigree:
    """Write the best model and its pedigree, then let the checkpoints go."""
    model = folder / MODEL
    weights = trainer.accelerator.get_state_dict(trainer.model)
    state = trainer.state
    best = state.best_model_checkpoint
    found = Pedigree(
        arm=recipe.arm,
        seed=seed,
        base=base.weights,
        data=splits.digest,
        data_name=splits.name,
        recipe=recipe.to_json(),
        steps=state.global_step,
        epochs=float(state.epoch or 0.0),
        examples=state.global_step * recipe.settings.batch,
        seconds=max((entry["seconds"] for entry in state.log_history if "seconds" in entry), default=0.0),
        best_step=_steps_of(best) if best else state.global_step,
        history=tuple(_moments(state.log_history)),
    )
    if trainer.is_world_process_zero():
        trained: Any = stack.model
        trained.save_pretrained(model, state_dict=weights)
        if stack.tokenizer is not None:
            stack.tokenizer.save_pretrained(model)
        settings = None if base.place is None else cached_file(base.place, PREPROCESSING, **_MAY_BE_ABSENT)
        if settings is not None:
            shutil.copyfile(settings, model / PREPROCESSING)
        found.write(model)
        for checkpoint in folder.glob("checkpoint-*"):
            shutil.rmtree(checkpoint)
    trainer.accelerator.wait_for_everyone()
    return found


def _moments(history: list[dict[str, Any]]) -> list[Moment]:
    kinds = {"loss": "train", "eval_loss": "validation"}
    return [
        Moment(int(entry["step"]), kind, float(entry[key]))
        for entry in history
        for key, kind in kinds.items()
        if key in entry
    ]


class _Clock(TrainerCallback):
    """Counts the seconds of all sittings into the log, and tells who watches."""

    def __init__(self, progress: Progress | None) -> None:
        self.progress = progress
        self.loss: float | None = None
        self.begun = 0.0
        self.before = 0.0

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.begun = time.perf_counter()
        self.before = max((entry["seconds"] for entry in state.log_history if "seconds" in entry), default=0.0)

    def on_log(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        entry = state.log_history[-1]
        entry["seconds"] = self.before + time.perf_counter() - self.begun
        self.loss = entry.get("loss", self.loss)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self.progress is not None:
            self.progress(state.global_step, state.max_steps, self.loss)
