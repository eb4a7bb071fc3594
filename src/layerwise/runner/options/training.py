"""Options of every training; each replaces one field of its recipe, or a `TrainingArguments` of transformers.

Fine-tuning has options of its own: the tasks, and how a model is trained on them.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from layerwise.runner.option import option
from layerwise.runner.training_options import changed, resolve_precision, trainer_arguments
from layerwise.train.precision import Precision


def seeds_option(default: int) -> Any:
    return option(default, metavar="N", least=1, most=1_000)


def steps_option() -> Any:
    return option(None, metavar="N", least=1)


@dataclass(frozen=True, kw_only=True)
class OptimizationOptions:
    """How a model is optimized. What is left out keeps the recipe's value."""

    batch_size: int | None = option(None, metavar="N", least=1)
    gradient_accumulation: int | None = option(None, "Forward passes in a step.", metavar="N", least=1, setting=True)
    precision: Literal["float32", "bfloat16", "float16"] | None = option(
        None,
        "Data type of the forward pass; by default bfloat16 on an accelerator that has it, else float32.",
        rare=True,
    )
    compile: bool = option(
        False, "Compile the blocks with torch.compile: one graph of each kind, for every order.", setting=True
    )
    evals: int | None = option(None, "Evaluations on the validation split.", metavar="N", least=1, setting=True)
    track: tuple[str, ...] = option(
        (), "Trackers that follow the trainings: tensorboard, trackio, wandb, ...", metavar="NAMES", rare=True
    )
    checkpoint_minutes: float | None = option(
        None, "Minutes between checkpoints, beside those of the evaluations.", metavar="X", setting=True
    )
    set: tuple[str, ...] = option(
        (), "Any of transformers' TrainingArguments; repeat for more.", metavar="NAME=VALUE", repeated=True
    )

    def trainer_arguments(self, device: str) -> dict[str, Any]:
        return trainer_arguments(self.set, device=device, track=self.track, checkpoint_minutes=self.checkpoint_minutes)

    def resolved_precision(self, device: str, run: Path | None) -> Precision:
        return resolve_precision(self.precision, self.trainer_arguments(device), device=device, run=run)

    def changes(self) -> dict[str, Any]:
        return changed(
            compiled=self.compile or None,
            batch_size=self.batch_size,
            gradient_accumulation_steps=self.gradient_accumulation,
            precision=self.precision,
            evals=self.evals,
        )


@dataclass(frozen=True, kw_only=True)
class TrainingOptions(OptimizationOptions):
    """How a model is optimized, at one learning rate."""

    learning_rate: float | None = option(None, metavar="X")

    def changes(self) -> dict[str, Any]:
        return {**super().changes(), **changed(learning_rate=self.learning_rate)}


@dataclass(frozen=True, kw_only=True)
class FineTuningOptions:
    """How models are fine-tuned on tasks; what is left out keeps its usual value."""

    tasks: tuple[str, ...] = option((), metavar="NAMES")
    seeds: int = option(3, metavar="N", least=1, most=1_000)
    train: Literal["all", "head"] = option("all", "Weights that learn: all, or the new head alone.", rare=True)
    learning_rate: float | None = option(None, metavar="X", above=0)
    batch_size: int | None = option(None, metavar="N", least=1, rare=True)
    epochs: int | None = option(None, metavar="N", least=1)
    patience: int | None = option(
        None,
        "Epochs without a better selection score that end the training; 3 by default.",
        metavar="N",
        least=1,
        setting=True,
    )
    max_length: int | None = option(None, metavar="N", least=2, rare=True)
    curve_points: int = option(
        0,
        "Points of the learning curve of every fine-tuning, beside the ends of its epochs.",
        metavar="N",
        least=0,
        most=1_000,
        setting=True,
    )
    published: Literal["none", "elc-bert"] = option(
        "none", "Use the settings of a published model for each task, unless an option sets them.", setting=True
    )

    def changes(self) -> dict[str, Any]:
        rates = None if self.learning_rate is None else (self.learning_rate,)
        return changed(
            learning_rates=rates,
            batch_size=self.batch_size,
            epochs=self.epochs,
            patience=self.patience,
            length=self.max_length,
            train=None if self.train == "all" else self.train,
            evals=self.curve_points or None,
            published=None if self.published == "none" else self.published,
        )
