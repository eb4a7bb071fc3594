"""One training: from a base model, splits and a recipe to an ordinary model folder, through kills and restarts.

    FOLDER/training_config.json  what this training is, so that no other goes on in its folder
    FOLDER/checkpoint-120/       the Trainer's, the last one and the best one; gone when the training is done
    FOLDER/states/               what a growth schedule keeps of frozen layers; gone when the phase is done
    FOLDER/model/                the model with the least validation loss, as plain transformers loads it
    FOLDER/model/training.json   its training record, written last

The same call on the same folder goes on from the last checkpoint, and does nothing when the model is finished.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformers import PrinterCallback, TrainingArguments, set_seed
from transformers.utils import cached_file

from layerwise.data.splits import Splits
from layerwise.errors import TrainError
from layerwise.plan.samplers import SeededSampler
from layerwise.results.training_record import MODEL, TrainingRecord
from layerwise.stack import Stack
from layerwise.train.arguments import training_arguments, with_device
from layerwise.train.checkpoint_dir import discard_checkpoints, existing_run, last_checkpoint, steps_of, write_config
from layerwise.train.data_order import Epochs, LengthGroupedSampler, ReproducibleDataset
from layerwise.train.input_pipeline import input_arguments
from layerwise.train.monitoring.clock import Clock, Progress, moments, seconds_of
from layerwise.train.phases.runner import growth_runner
from layerwise.train.phases.trainer import GrowthTrainer
from layerwise.train.precision import ARGUMENTS
from layerwise.train.recipe import Recipe, Settings
from layerwise.train.sharding import check_sharding, with_units
from layerwise.train.trainer import PlanTrainer

PREPROCESSING = "preprocessor_config.json"
STATES = "states"
_MAY_BE_ABSENT = {"_raise_exceptions_for_missing_entries": False, "_raise_exceptions_for_connection_errors": False}


@dataclass(frozen=True, slots=True)
class Base:
    """The model that trainings begin from: how to open it anew, the hash of its weights, and where they are from.

    Every training opens its own copy, since a training changes it.
    """

    open: Callable[[], Stack]
    weights: str
    location: str | None = None


def training_config(base: Base, splits: Splits, recipe: Recipe, seed: int) -> dict[str, Any]:
    """What a training is, as its folder records it: a folder that records another one is refused."""
    return {"base": base.weights, "data": splits.digest, "recipe": recipe.to_json(), "seed": seed}


def train(
    base: Base,
    splits: Splits,
    recipe: Recipe,
    seed: int,
    folder: Path,
    *,
    progress: Progress | None = None,
    arguments: Mapping[str, Any] | None = None,
    states: Path | None = None,
) -> TrainingRecord:
    """Train `recipe` with `seed` into `folder`, or carry on what is there; returns the training record of the model.

    `arguments` are further `TrainingArguments` (trackers, FSDP, workers, ...), which win over the recipe's. `states` is
    where cached phases of a growth schedule keep what frozen layers compute, `folder`/states if not said. Raises
    `TrainError` when the folder holds another training, or at a loss or a gradient that is not finite (see
    `FiniteTrainer`).
    """
    wanted = training_config(base, splits, recipe, seed)
    finished = existing_run(folder, wanted)
    if finished is not None:
        return finished
    trainer = trainer_of(base, splits, recipe, seed, folder, progress=progress, arguments=arguments, states=states)
    write_config(folder, wanted)
    trainer.train(resume_from_checkpoint=last_checkpoint(folder))
    return _publish(trainer, base, splits, recipe, seed, folder)


def trainer_of(
    base: Base,
    splits: Splits,
    recipe: Recipe,
    seed: int,
    folder: Path,
    *,
    progress: Progress | None = None,
    arguments: Mapping[str, Any] | None = None,
    states: Path | None = None,
) -> PlanTrainer:
    """The Trainer of a training, on a model of its own; nothing is written. The arguments are those of `train`."""
    set_seed(seed)
    stack = base.open()
    if recipe.from_scratch:
        _redraw(stack)
    added = recipe.variant.attach(stack)
    given = with_units(with_device(arguments or {}), map(stack.block, range(stack.depth)))
    examples, batch = ReproducibleDataset(splits.train, seed), recipe.settings.batch_size
    options: dict[str, Any] = {
        "stack": stack,
        "order": LengthGroupedSampler(examples, None if splits.classes else batch, batch),
        "args": _arguments(recipe.settings, recipe, len(splits.train), seed, folder, given),
        "data_collator": splits.collate,
        "train_dataset": examples,
        "eval_dataset": splits.validation,
        "callbacks": [Clock(progress), Epochs(examples)],
        "compiled": recipe.settings.compiled,
    }
    if recipe.growth is not None:
        training = training_config(base, splits, recipe, seed)
        grows = growth_runner(stack, recipe.growth, splits, training, states or folder / STATES)
        trainer: PlanTrainer = GrowthTrainer(runner=grows, **options)
    else:
        make = recipe.variant.trainer() or PlanTrainer
        trainer = make(
            draws=SeededSampler(recipe.sampler, stack.depth, seed, stream=_stream(recipe)),
            validation=SeededSampler(recipe.validation, stack.depth, 0, stream="validation"),
            added=added,
            **options,
        )
    check_sharding(trainer, per_rank=recipe.ranks == "per-rank")
    trainer.remove_callback(PrinterCallback)
    return trainer


def _redraw(stack: Stack) -> None:
    """New random weights, drawn as the model's own class draws them."""
    fresh = type(stack.model)(stack.model.config)
    stack.model.load_state_dict(fresh.state_dict())


def _stream(recipe: Recipe) -> str:
    """Draws that processes share, or draws that each makes for itself."""
    if recipe.ranks == "shared":
        return "training"
    from accelerate import PartialState

    return f"training/{PartialState().process_index}"


def _arguments(
    settings: Settings, recipe: Recipe, examples: int, seed: int, folder: Path, more: dict[str, Any]
) -> TrainingArguments:
    from accelerate import PartialState

    processes = PartialState(cpu=bool(more["use_cpu"])).num_processes
    passes = settings.gradient_accumulation_steps
    piece, rest = divmod(settings.batch_size, passes * processes)
    if rest or piece == 0:
        raise TrainError(
            f"a batch of {settings.batch_size} does not fall into equal pieces for {processes} processes x "
            f"{passes} passes; write a batch that is a multiple of {passes * processes}"
        )
    steps = recipe.steps(examples)
    every = max(1, math.ceil(steps / settings.evals))
    arguments = training_arguments(
        {
            "output_dir": str(folder),
            "max_steps": steps,
            "per_device_train_batch_size": piece,
            "per_device_eval_batch_size": max(piece * processes, 64),
            "gradient_accumulation_steps": settings.gradient_accumulation_steps,
            "learning_rate": settings.learning_rate,
            "lr_scheduler_type": settings.schedule,
            "warmup_steps": round(settings.warmup * steps),
            "adam_beta1": settings.betas[0],
            "adam_beta2": settings.betas[1],
            "adam_epsilon": settings.epsilon,
            "weight_decay": settings.weight_decay,
            "max_grad_norm": settings.max_grad_norm,
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
            **input_arguments(more),
            **ARGUMENTS[settings.precision],
            **({"gradient_checkpointing": True} if settings.gradient_checkpointing else {}),
            **recipe.variant.TRAINING_ARGUMENTS,
            **more,
        }
    )
    # One process drives one device: torch's DataParallel would copy the blocks away from their plans. Use torchrun.
    arguments._n_gpu = min(1, arguments.n_gpu)
    return arguments


def _publish(
    trainer: PlanTrainer, base: Base, splits: Splits, recipe: Recipe, seed: int, folder: Path
) -> TrainingRecord:
    """Write the model (the best; of a growth schedule the last) and its training record, and remove the checkpoints."""
    model = folder / MODEL
    trainer.write(model)
    state = trainer.state
    best = state.best_model_checkpoint
    record = TrainingRecord(
        arm=recipe.arm,
        seed=seed,
        base=base.weights,
        data=splits.digest,
        data_name=splits.name,
        recipe=recipe.to_json(),
        steps=state.global_step,
        epochs=float(state.epoch or 0.0),
        examples=state.global_step * recipe.settings.batch_size,
        seconds=seconds_of(state.log_history),
        best_step=steps_of(best) if best else state.global_step,
        history=moments(state.log_history),
        figures=trainer.figures(),
    )
    if trainer.is_world_process_zero():
        settings = None if base.location is None else cached_file(base.location, PREPROCESSING, **_MAY_BE_ABSENT)
        if settings is not None:
            shutil.copyfile(settings, model / PREPROCESSING)
        record.write(model)
        discard_checkpoints(folder)
    trainer.accelerator.wait_for_everyone()
    return record
