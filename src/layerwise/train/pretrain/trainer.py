"""Pretraining: a masked language model from random weights, through kills and restarts, to an ordinary model folder.

    FOLDER/training_config.json  what this training is, so that no other goes on in its folder
    FOLDER/checkpoint-120/       the Trainer's; gone when the training is done
    FOLDER/model/                the model after its last step, with its tokenizer, as plain transformers loads it
    FOLDER/model/training.json   its training record, written last

The loop is the Hugging Face Trainer's, so half precision, accumulation, DDP, FSDP (version 2, where a norm is that of
the whole tensor) and trackers are as ever, and nothing asks for an accelerator. The same call on the same folder goes
on from the last checkpoint, with the losses of a training that was never stopped.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch
from accelerate import PartialState
from accelerate.utils import broadcast_object_list
from torch import nn
from torch.optim.lr_scheduler import LambdaLR, LRScheduler
from torch.utils.data import DataLoader
from transformers import PreTrainedTokenizerBase, PrinterCallback, TrainingArguments, set_seed

from layerwise.data.text.segments import PretrainingText, cut
from layerwise.data.text.span_masking import FixedMasks, MaskedSegments, Padding, SpanMasking
from layerwise.data.text.vocabulary import check_tokenizer
from layerwise.models.elc.configuration import SIZES
from layerwise.results.training_record import MODEL, TrainingRecord
from layerwise.stack.compilation import compiled_blocks
from layerwise.train.arguments import training_arguments, with_device
from layerwise.train.checkpoint_dir import acquire, discard_checkpoints, last_checkpoint
from layerwise.train.input_pipeline import input_arguments
from layerwise.train.monitoring.clock import Clock, Progress, gradient_norms, moments, seconds_of
from layerwise.train.monitoring.pace import figures_of
from layerwise.train.precision import ARGUMENTS
from layerwise.train.pretrain.curriculum import Batches, rate_at
from layerwise.train.pretrain.lamb import lamb
from layerwise.train.pretrain.recipe import PretrainingRecipe, new_model
from layerwise.train.pretrain.time_budget import promised_steps, seconds_a_step, steps_that_fit
from layerwise.train.sharding import check_sharding, with_units
from layerwise.train.validation import DividedValidation


def training_config(
    tokenizer: PreTrainedTokenizerBase, text: PretrainingText, recipe: PretrainingRecipe, seed: int
) -> dict[str, Any]:
    """What a pretraining is, as its folder records it: a folder that records another one is refused."""
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
    """Pretrain `recipe` with `seed` into `folder`, or carry on what is there; returns the training record of the model.

    `arguments` are further `TrainingArguments` (trackers, FSDP, workers, ...), which win over the recipe's. Raises
    `DataError` for a tokenizer without the tokens it needs, `TrainError` for a text that is smaller than a batch, when
    the folder holds another training, and at a loss or a gradient that is not finite (see `FiniteTrainer`).
    """
    check_tokenizer(tokenizer, str(tokenizer.name_or_path or "that was given"))
    training = training_config(tokenizer, text, recipe, seed)
    # A text that is too short is refused before the folder is claimed.
    recipe.phases([len(cut(text.train, length)) for length in recipe.lengths])
    finished = acquire(folder, training)
    if finished is not None:
        return finished
    trainer = trainer_of(tokenizer, text, recipe, seed, folder, progress=progress, arguments=arguments)
    trainer.train(resume_from_checkpoint=last_checkpoint(folder))
    return _publish(trainer, tokenizer, text, training, folder)


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
    """The Trainer of a pretraining, on a model of its own; nothing is written. The arguments are those of `pretrain`.

    How many steps fit into the seconds of a recipe is timed here, or read from the checkpoint in `folder`.
    """
    arguments = with_device(arguments or {})
    masking = SpanMasking.of(tokenizer, recipe.mask_probability, recipe.stop)
    segments = [cut(text.train, length) for length in recipe.lengths]
    counts = [len(each) for each in segments]
    examples = MaskedSegments(segments, masking, tokenizer, seed)
    if recipe.seconds is not None:
        steps = promised_steps(folder) or _timed_steps(recipe, tokenizer, examples, counts, dict(arguments))
        recipe = replace(recipe, steps=steps)
    set_seed(seed)
    model = new_model(recipe, tokenizer)
    given = _arguments(recipe, seed, folder, with_units(arguments, model.encoder.layers))
    trainer = PretrainingTrainer(
        recipe=recipe,
        batches=Batches(
            recipe.phases(counts),
            seed,
            passes=given.gradient_accumulation_steps,
            processes=given.world_size,
            process=given.process_index,
        ),
        model=model,
        args=given,
        data_collator=Padding(int(tokenizer.pad_token_id)),
        train_dataset=examples,
        eval_dataset=FixedMasks(cut(text.validation, recipe.lengths[0]), masking, tokenizer, recipe.validation),
        callbacks=[Clock(progress)],
    )
    check_sharding(trainer)
    trainer.remove_callback(PrinterCallback)
    return trainer


class PretrainingTrainer(DividedValidation):
    """A Trainer with the batches, optimiser and rate of a `PretrainingRecipe`; everything else is the parent's."""

    optimizer: Any
    lr_scheduler: Any

    def __init__(self, *, recipe: PretrainingRecipe, batches: Batches, **options: Any) -> None:
        super().__init__(**options)
        self.recipe = recipe
        self.batches = batches

    def train(self, *args: Any, **kwargs: Any) -> Any:
        """The parent's training, with the layers compiled if they are to be."""
        with _compiled(self.recipe, self.model):
            return super().train(*args, **kwargs)

    def get_train_dataloader(self) -> DataLoader[Any]:
        """The batches of this process; they are divided already, so accelerate has nothing to divide."""
        return DataLoader(
            self.train_dataset,
            batch_sampler=self.batches,
            collate_fn=self.data_collator,
            num_workers=self.args.dataloader_num_workers,
            pin_memory=self.args.dataloader_pin_memory,
            prefetch_factor=self.args.dataloader_prefetch_factor,
        )

    def create_optimizer(self, model: nn.Module | None = None) -> torch.optim.Optimizer:
        """LAMB in its two groups."""
        if self.optimizer is None:
            self.optimizer = _optimizer(self.recipe, self.model if model is None else model)
        optimizer: torch.optim.Optimizer = self.optimizer
        return optimizer

    def create_scheduler(self, num_training_steps: int, optimizer: torch.optim.Optimizer | None = None) -> LRScheduler:
        """The rate of every step, see `layerwise.train.pretrain.curriculum.rate_at`."""
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
    """SHA-256 over what the random weights are drawn for: the shape of the model and the vocabulary."""
    content = [SIZES[recipe.size], recipe.variant, recipe.initialisation, sorted(tokenizer.get_vocab().items())]
    return sha256(json.dumps(content).encode()).hexdigest()


def _compiled(recipe: PretrainingRecipe, model: Any) -> AbstractContextManager[None]:
    """A context in which the layers are compiled, if they are to be: one graph for segments of both lengths."""
    return compiled_blocks(model.encoder.layers, dynamic=True) if recipe.compiled else nullcontext()


def _optimizer(recipe: PretrainingRecipe, model: nn.Module) -> torch.optim.Optimizer:
    return lamb(
        model.named_parameters(),
        learning_rate=recipe.learning_rate,
        betas=recipe.betas,
        epsilon=recipe.epsilon,
        weight_decay=recipe.weight_decay,
    )


def _arguments(recipe: PretrainingRecipe, seed: int, folder: Path, more: dict[str, Any]) -> TrainingArguments:
    every = max(1, -(-recipe.steps // recipe.evals))
    arguments = training_arguments(
        {
            "output_dir": str(folder),
            "max_steps": recipe.steps,
            "per_device_train_batch_size": max(1, recipe.batch_size // recipe.gradient_accumulation_steps),
            "per_device_eval_batch_size": 64,
            "gradient_accumulation_steps": recipe.gradient_accumulation_steps,
            "learning_rate": recipe.learning_rate,
            "max_grad_norm": recipe.max_grad_norm,
            "logging_steps": max(1, every // 4),
            "eval_strategy": "steps",
            "eval_steps": every,
            "prediction_loss_only": True,
            "save_strategy": "steps",
            "save_steps": every,
            "save_total_limit": 2,
            "include_num_input_tokens_seen": "non_padding",
            "seed": seed,
            "report_to": "none",
            "disable_tqdm": True,
            "remove_unused_columns": False,
            "label_names": ["labels"],
            **input_arguments(more),
            **ARGUMENTS[recipe.precision],
            **more,
        }
    )
    # One process drives one device: torch's DataParallel would divide batches that are divided already. Use torchrun.
    arguments._n_gpu = min(1, arguments.n_gpu)
    return arguments


def _timed_steps(
    recipe: PretrainingRecipe,
    tokenizer: PreTrainedTokenizerBase,
    examples: MaskedSegments,
    counts: list[int],
    more: dict[str, Any],
) -> int:
    """The steps that fit into the recipe's seconds, the same on every process."""
    assert recipe.seconds is not None
    state = PartialState(cpu=bool(more["use_cpu"]))
    model = new_model(recipe, tokenizer).to(state.device)
    optimizer = _optimizer(recipe, model)
    collate = Padding(int(tokenizer.pad_token_id))
    half = recipe.precision != "float32"
    with _compiled(recipe, model), torch.autocast(state.device.type, torch.bfloat16, enabled=half):
        paces = [
            (
                (phase.end - phase.first) / recipe.steps,
                seconds_a_step(
                    model,
                    optimizer,
                    examples,
                    collate,
                    phase,
                    passes=recipe.gradient_accumulation_steps,
                    processes=state.num_processes,
                ),
            )
            for phase in recipe.phases(counts)
        ]
    return int(broadcast_object_list([steps_that_fit(recipe.seconds, paces)])[0])


def _publish(
    trainer: PretrainingTrainer,
    tokenizer: PreTrainedTokenizerBase,
    text: PretrainingText,
    training: Mapping[str, Any],
    folder: Path,
) -> TrainingRecord:
    """Write the model and its training record, then let the checkpoints go."""
    weights = trainer.accelerator.get_state_dict(trainer.model)
    model = trainer.accelerator.unwrap_model(trainer.model)
    state, recipe = trainer.state, trainer.recipe
    record = TrainingRecord(
        **training,
        arm=recipe.arm,
        data_name=text.name,
        steps=state.global_step,
        epochs=state.num_input_tokens_seen / len(text.train.ids),
        examples=recipe.examples,
        seconds=seconds_of(state.log_history),
        best_step=state.global_step,
        history=moments(state.log_history),
        figures={
            "tokens": float(state.num_input_tokens_seen),
            "parameters": float(model.num_parameters()),
            **figures_of(state.log_history),
            **gradient_norms(state.log_history),
        },
    )
    if trainer.is_world_process_zero():
        path = folder / MODEL
        model.save_pretrained(path, state_dict=weights)
        tokenizer.save_pretrained(path)
        record.write(path)
        discard_checkpoints(folder)
    trainer.accelerator.wait_for_everyone()
    return record
