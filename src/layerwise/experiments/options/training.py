"""Options of every training; each replaces one field of its recipe, or a `TrainingArguments` of transformers."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from layerwise.errors import TrainError
from layerwise.experiments.option import option
from layerwise.train.precision import Precision, default_precision, recorded_precision


def seeds_option(default: int) -> Any:
    """The option `--seeds`, whose default depends on the verb."""
    return option(default, metavar="N", least=1, most=1_000)


def steps_option() -> Any:
    """The option `--steps`, which not every training has."""
    return option(None, metavar="N", least=1)


@dataclass(frozen=True, kw_only=True)
class OptimizationOptions:
    """How a model is optimized. What is left out keeps the recipe's value."""

    batch_size: int | None = option(None, metavar="N", least=1)
    gradient_accumulation: int | None = option(None, "Forward passes in a step.", metavar="N", least=1, setting=True)
    precision: Literal["float32", "bfloat16", "float16"] | None = option(
        None, "Data type of the forward pass; by default bfloat16 on an accelerator that has it, else float32.",
        rare=True,
    )  # fmt: skip
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
        (), "Any of transformers' TrainingArguments; repeat for more.",
        metavar="NAME=VALUE", repeated=True,
    )  # fmt: skip

    def trainer_arguments(self, device: str) -> dict[str, Any]:
        """The arguments of `--track`, `--checkpoint-minutes` and `--set` by name; values that are JSON are read as it.

        Raises `TrainError` for a text of another form, and for an argument that two options give.

        >>> options = OptimizationOptions(set=("report_to=tensorboard", "dataloader_num_workers=4"))
        >>> options.trainer_arguments("auto")
        {'report_to': 'tensorboard', 'dataloader_num_workers': 4}
        """
        arguments: dict[str, Any] = {"use_cpu": True} if device == "cpu" else {}
        own = {"report_to": list(self.track) or None, "checkpoint_minutes": self.checkpoint_minutes}
        arguments |= changed(**own)
        for text in self.set:
            name, equals, value = text.partition("=")
            if not equals or not name.isidentifier():
                raise TrainError(f"--set takes NAME=VALUE, as in --set report_to=tensorboard; found {text!r}")
            if name in own and name in arguments:
                raise TrainError(
                    f"--set {name} and an option of its own both say what {name} is; leave one of them out"
                )
            try:
                arguments[name] = json.loads(value)
            except (ValueError, RecursionError):
                arguments[name] = value
        return arguments

    def resolved_precision(self, device: str, run: Path | None) -> Precision:
        """The precision that was asked for, else that in which `run` began, else the default of the device.

        What `--set` says of half precisions stands by itself, beside float32.
        """
        if self.precision is not None:
            return self.precision
        if {"bf16", "fp16"} & self.trainer_arguments(device).keys():
            return "float32"
        return (run and recorded_precision(run)) or default_precision(device)

    def changes(self) -> dict[str, Any]:
        """The settings of a recipe that these options replace, by the names of its fields."""
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
        """The settings of a recipe that these options replace, by the names of its fields."""
        return {**super().changes(), **changed(learning_rate=self.learning_rate)}


def changed(**values: Any) -> dict[str, Any]:
    """The values that are not `None`, by name: those that replace a recipe's.

    >>> changed(batch_size=8, learning_rate=None)
    {'batch_size': 8}
    """
    return {name: value for name, value in values.items() if value is not None}
