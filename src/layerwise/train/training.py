"""Train a base model under plans, according to a recipe."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from accelerate import PartialState
from transformers import set_seed

from layerwise.data.splits import Splits
from layerwise.errors import TrainError
from layerwise.plan.samplers import SeededSampler
from layerwise.results.training_record import TrainingRecord
from layerwise.stack import Stack
from layerwise.train.arguments import MeasuredArguments, common_arguments, step_arguments, with_device
from layerwise.train.checkpoint_dir import run_training
from layerwise.train.data_order import LengthGroupedSampler, ReproducibleDataset
from layerwise.train.phases.runner import GrowthTrainer, growth_runner
from layerwise.train.precision import ARGUMENTS
from layerwise.train.recipe import Recipe
from layerwise.train.sharding import check_sharding, with_units
from layerwise.train.trainer import PlanTrainer
from layerwise.train.training_log import Progress


@dataclass(frozen=True, slots=True)
class Base:
    """Base model of training runs: `open` loads a new copy, and `weights` is the hash of its weights."""

    open: Callable[[], Stack]
    weights: str
    location: str | None = None


def training_config(base: Base, splits: Splits, recipe: Recipe, seed: int) -> dict[str, Any]:
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
) -> TrainingRecord:
    """Train a model and write it to `folder`, or resume; return the training record of the model.

    `arguments` has further `TrainingArguments` (trackers, FSDP, workers), which override the recipe.

    Raises:
        TrainError: If the folder holds a different training run, or if a loss or gradient is not finite.
    """
    make = partial(trainer_of, base, splits, recipe, seed, folder, progress=progress, arguments=arguments)
    config = training_config(base, splits, recipe, seed)
    return run_training(make, config, folder, variant=recipe.variant, data_name=splits.name, location=base.location)


def trainer_of(
    base: Base,
    splits: Splits,
    recipe: Recipe,
    seed: int,
    folder: Path,
    *,
    progress: Progress | None = None,
    arguments: Mapping[str, Any] | None = None,
) -> PlanTrainer:
    """Create the Trainer for a new copy of the base model; the parameters are those of `train`."""
    set_seed(seed)
    stack = base.open()
    if recipe.from_scratch:
        stack.model.load_state_dict(type(stack.model)(stack.model.config).state_dict())
    added = recipe.extension.attach(stack)
    blocks = [stack.block(layer) for layer in range(stack.depth)]
    given = with_units(with_device(arguments or {}), blocks)
    examples, batch = ReproducibleDataset(splits.train, seed), recipe.settings.batch_size
    options: dict[str, Any] = {
        "stack": stack,
        "order": LengthGroupedSampler(examples, None if splits.classes else batch, batch),
        "args": _arguments(recipe, len(splits.train), seed, folder, given),
        "data_collator": splits.collate,
        "train_dataset": examples,
        "eval_dataset": splits.validation,
        "progress": progress,
        "compiled": blocks if recipe.settings.compiled else (),
    }
    if recipe.growth is not None:
        grows = growth_runner(stack, recipe.growth, splits, seed)
        trainer: PlanTrainer = GrowthTrainer(runner=grows, **options)
    else:
        make = recipe.extension.trainer() or PlanTrainer
        trainer = make(
            draws=SeededSampler(recipe.sampler, stack.depth, seed, stream=_stream(recipe)),
            validation=SeededSampler(recipe.validation, stack.depth, 0, stream="validation"),
            added=added,
            **options,
        )
    check_sharding(trainer, per_rank=recipe.ranks == "per-rank")
    return trainer


def _stream(recipe: Recipe) -> str:
    if recipe.ranks == "shared":
        return "training"
    return f"training/{PartialState().process_index}"


def _arguments(recipe: Recipe, examples: int, seed: int, folder: Path, given: dict[str, Any]) -> MeasuredArguments:
    settings = recipe.settings
    processes = PartialState(cpu=bool(given["use_cpu"])).num_processes
    passes = settings.gradient_accumulation_steps
    piece, rest = divmod(settings.batch_size, passes * processes)
    if rest or piece == 0:
        raise TrainError(
            f"batch_size must be a multiple of {passes * processes} ({processes} processes x {passes} passes), got "
            f"{settings.batch_size}."
        )
    steps = recipe.steps(examples)
    own = {
        **step_arguments(steps, settings.evals),
        "per_device_train_batch_size": piece,
        "per_device_eval_batch_size": max(piece * processes, 64),
        "gradient_accumulation_steps": passes,
        "learning_rate": settings.learning_rate,
        "lr_scheduler_type": settings.schedule,
        "warmup_steps": round(settings.warmup * steps),
        "adam_beta1": settings.betas[0],
        "adam_beta2": settings.betas[1],
        "adam_epsilon": settings.epsilon,
        "weight_decay": settings.weight_decay,
        "max_grad_norm": settings.max_grad_norm,
        "load_best_model_at_end": True,
        "metric_for_best_model": "eval_loss",
        "greater_is_better": False,
        "ddp_find_unused_parameters": recipe.skips_layers if processes > 1 else None,
        **ARGUMENTS[settings.precision],
        **({"gradient_checkpointing": True} if settings.gradient_checkpointing else {}),
        **recipe.extension.TRAINING_ARGUMENTS,
    }
    return common_arguments(folder, seed, given, **own)
