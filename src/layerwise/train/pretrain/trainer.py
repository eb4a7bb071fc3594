"""Pretrain a masked language model from random weights.

To compare models at equal time, a recipe can set `seconds` instead of `steps`. A few steps of both phases are then
timed to estimate how many steps fit. A resumed run keeps the number of steps of its first session.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import broadcast_object_list
from torch import nn
from torch.optim.lr_scheduler import LambdaLR, LRScheduler
from torch.utils.data import DataLoader
from transformers import PreTrainedTokenizerBase, set_seed
from transformers.trainer import TRAINER_STATE_NAME

from layerwise.data.text.segments import PretrainingText, cut_segments
from layerwise.data.text.span_masking import FixedMasks, MaskedSegments, SpanMasking, make_padding_collator
from layerwise.data.text.vocabulary import check_tokenizer
from layerwise.errors import RunError
from layerwise.models.elc.configuration import SIZES
from layerwise.results.checked import read_json_file
from layerwise.results.training_record import TrainingRecord
from layerwise.train.arguments import MeasuredArguments, common_arguments, step_arguments, with_device
from layerwise.train.checkpoint_dir import last_checkpoint, run_training
from layerwise.train.precision import ARGUMENTS
from layerwise.train.pretrain.curriculum import Batches, CurriculumPhase, rate_at
from layerwise.train.pretrain.lamb import Lamb
from layerwise.train.pretrain.recipe import PretrainingRecipe, new_model
from layerwise.train.sharding import with_units
from layerwise.train.training_log import MakeTrainer, Progress, gradient_norms, time_step
from layerwise.train.validation import DividedValidation

_TIMED = 4


def training_config(
    tokenizer: PreTrainedTokenizerBase, text: PretrainingText, recipe: PretrainingRecipe, seed: int
) -> dict[str, Any]:
    return {"base": _origin(recipe, tokenizer), "data": text.digest, "recipe": recipe.to_json(), "seed": seed}


def pretrain(
    tokenizer: PreTrainedTokenizerBase,
    text: PretrainingText,
    recipe: PretrainingRecipe,
    seed: int,
    folder: Path,
    *,
    progress: Progress | None = None,
    arguments: Mapping[str, Any] | None = None,
) -> TrainingRecord:
    """Pretrain a model and write it to `folder`, or resume; return the training record of the model.

    `arguments` has further `TrainingArguments` (trackers, FSDP, workers), which override the recipe.

    Raises:
        DataError: If the tokenizer lacks required tokens.
        TrainError: If the text is smaller than a batch, the folder holds a different training run, or a loss or
            gradient is not finite.
    """
    check_tokenizer(tokenizer, str(tokenizer.name_or_path or "that was given"))
    make = partial(trainer_of, tokenizer, text, recipe, seed, folder, progress=progress, arguments=arguments)
    config = training_config(tokenizer, text, recipe, seed)
    return run_training(make, config, folder, variant=recipe.variant, data_name=text.name)


def trainer_of(
    tokenizer: PreTrainedTokenizerBase,
    text: PretrainingText,
    recipe: PretrainingRecipe,
    seed: int,
    folder: Path,
    *,
    progress: Progress | None = None,
    arguments: Mapping[str, Any] | None = None,
) -> PretrainingTrainer:
    """Create the Trainer for a new model; the parameters are those of `pretrain`.

    If the recipe sets `seconds`, the number of steps is read from a checkpoint in `folder`, or else estimated here.
    """
    arguments = with_device(arguments or {})
    masking = SpanMasking.of(tokenizer, recipe.mask_probability, recipe.stop)
    segments = [cut_segments(text.train, length) for length in recipe.lengths]
    counts = [len(each) for each in segments]
    examples = MaskedSegments(segments, masking, tokenizer, seed)
    validation = FixedMasks(cut_segments(text.validation, recipe.lengths[0]), masking, tokenizer, recipe.validation)

    def make_trainer(recipe: PretrainingRecipe, folder: Path, arguments: Mapping[str, Any]) -> PretrainingTrainer:
        set_seed(seed)
        model = new_model(recipe, tokenizer)
        given = _arguments(recipe, seed, folder, with_units(arguments, model.encoder.layers))
        return PretrainingTrainer(
            recipe=recipe,
            text=text,
            tokenizer=tokenizer,
            batches=Batches(
                recipe.phases(counts),
                seed,
                passes=given.gradient_accumulation_steps,
                processes=given.world_size,
                process=given.process_index,
            ),
            model=model,
            args=given,
            data_collator=make_padding_collator(int(tokenizer.pad_token_id)),
            train_dataset=examples,
            eval_dataset=validation,
            progress=progress,
            compiled=list(model.encoder.layers) if recipe.compiled else (),
            dynamic=True,
        )

    if recipe.seconds is not None:
        steps = read_max_steps(folder) or _estimate_steps(
            recipe.seconds,
            recipe.phases(counts),
            lambda folder, quiet: make_trainer(recipe, folder, {**arguments, **quiet}),
        )
        recipe = replace(recipe, steps=steps)
    return make_trainer(recipe, folder, arguments)


class PretrainingTrainer(DividedValidation):
    optimizer: Any
    lr_scheduler: Any

    def __init__(self, *, recipe: PretrainingRecipe, text: PretrainingText, batches: Batches, **options: Any) -> None:
        super().__init__(**options)
        self.recipe = recipe
        self.text = text
        self.batches = batches

    def epochs(self) -> float:
        return float(self.state.num_input_tokens_seen / self.text.train.tokens)

    def examples(self) -> int:
        return self.recipe.examples

    def figures(self) -> dict[str, float]:
        return {
            "tokens": float(self.state.num_input_tokens_seen),
            "parameters": float(self.accelerator.unwrap_model(self.model).num_parameters()),
            **super().figures(),
            **gradient_norms(self.state.log_history),
        }

    def get_train_dataloader(self) -> DataLoader[Any]:
        """Return a loader of the batches of this process, bypassing accelerate, which would divide them again."""
        return DataLoader(
            self.train_dataset,
            batch_sampler=self.batches,
            collate_fn=self.data_collator,
            num_workers=self.args.dataloader_num_workers,
            pin_memory=self.args.dataloader_pin_memory,
            prefetch_factor=self.args.dataloader_prefetch_factor,
        )

    def create_optimizer(self, model: nn.Module | None = None) -> torch.optim.Optimizer:
        if self.optimizer is None:
            self.optimizer = Lamb(
                (self.model if model is None else model).named_parameters(),
                learning_rate=self.recipe.learning_rate,
                betas=self.recipe.betas,
                epsilon=self.recipe.epsilon,
                weight_decay=self.recipe.weight_decay,
            )
        optimizer: torch.optim.Optimizer = self.optimizer
        return optimizer

    def create_scheduler(self, num_training_steps: int, optimizer: torch.optim.Optimizer | None = None) -> LRScheduler:
        if self.lr_scheduler is None:
            warmup = round(self.recipe.warmup * num_training_steps)
            floor = self.recipe.floor
            self.lr_scheduler = LambdaLR(
                optimizer or self.optimizer, lambda step: rate_at(step, num_training_steps, warmup, floor)
            )
            self._created_lr_scheduler = True
        scheduler: LRScheduler = self.lr_scheduler
        return scheduler


def _origin(recipe: PretrainingRecipe, tokenizer: PreTrainedTokenizerBase) -> str:
    content = [SIZES[recipe.size], recipe.architecture, recipe.initialization, sorted(tokenizer.get_vocab().items())]
    return sha256(json.dumps(content).encode()).hexdigest()


def _arguments(recipe: PretrainingRecipe, seed: int, folder: Path, given: dict[str, Any]) -> MeasuredArguments:
    own = {
        **step_arguments(recipe.steps, recipe.evals),
        "per_device_train_batch_size": max(1, recipe.batch_size // recipe.gradient_accumulation_steps),
        "per_device_eval_batch_size": 64,
        "gradient_accumulation_steps": recipe.gradient_accumulation_steps,
        "learning_rate": recipe.learning_rate,
        "max_grad_norm": recipe.max_grad_norm,
        "prediction_loss_only": True,
        "include_num_input_tokens_seen": "non_padding",
        **ARGUMENTS[recipe.precision],
    }
    return common_arguments(folder, seed, given, **own)


def _estimate_steps(seconds: float, phases: Sequence[CurriculumPhase], make: MakeTrainer) -> int:
    def trial(folder: Path, quiet: Mapping[str, Any], phase: CurriculumPhase) -> PretrainingTrainer:
        trainer: PretrainingTrainer = make(folder, quiet)
        trainer.batches.steps = [min(phase.first + step, phase.end - 1) for step in range(1 + _TIMED)]
        trainer.pace.progress = None  # trial steps are not part of the training run
        return trainer

    paces = [
        ((phase.end - phase.first) / phases[-1].end, time_step(partial(trial, phase=phase), _TIMED)) for phase in phases
    ]
    return int(broadcast_object_list([count_steps(seconds, paces)])[0])


def count_steps(seconds: float, paces: Sequence[tuple[float, float]]) -> int:
    """Return the number of steps that fit in `seconds`, at least 1.

    `paces` has the share of the steps and the seconds per step of each phase.

    >>> count_steps(60.0, [(0.9, 0.5), (0.1, 1.5)])
    100
    """
    return max(1, round(seconds / sum(share * pace for share, pace in paces)))


def read_max_steps(folder: Path) -> int | None:
    checkpoint = last_checkpoint(folder)
    if checkpoint is None:
        return None
    state = Path(checkpoint) / TRAINER_STATE_NAME
    try:
        return int(read_json_file(state)["max_steps"])
    except (KeyError, TypeError, ValueError) as error:
        raise RunError(f"{state} is damaged: it has no max_steps. Remove {checkpoint}, then resume.") from error
