"""Options of every training; each replaces one field of its recipe, or a `TrainingArguments` of transformers."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Literal

from layerwise.errors import TrainError
from layerwise.experiments.option import option


def seeds_option(default: int) -> Any:
    """The option `--seeds`, whose default depends on the verb."""
    return option(default, "Trainings of each kind, with the seeds 0, 1, ...", metavar="N", least=1, most=1_000)


def steps_option() -> Any:
    """The option `--steps`, which not every training has."""
    return option(None, "Optimizer steps of each training.", metavar="N", least=1)


@dataclass(frozen=True, kw_only=True)
class OptimizationOptions:
    """How a model is optimized. What is left out keeps the recipe's value."""

    batch_size: int | None = option(None, "Examples in a step.", metavar="N", least=1)
    gradient_accumulation: int | None = option(None, "Forward passes in a step.", metavar="N", least=1)
    precision: Literal["float32", "bfloat16", "float16"] | None = option(None, "Data type of the forward pass.")
    evals: int | None = option(None, "Evaluations on the validation split.", metavar="N", least=1)
    set: tuple[str, ...] = option(
        (), "Any of transformers' TrainingArguments; repeat for more.", metavar="NAME=VALUE", repeated=True
    )

    def trainer_arguments(self, device: str) -> dict[str, Any]:
        """The `TrainingArguments` of `--set` by name; values are read as JSON where they are JSON.

        Raises `TrainError` for a text of another form.

        >>> options = OptimizationOptions(set=("report_to=tensorboard", "dataloader_num_workers=4"))
        >>> options.trainer_arguments("auto")
        {'report_to': 'tensorboard', 'dataloader_num_workers': 4}
        """
        arguments: dict[str, Any] = {"use_cpu": True} if device == "cpu" else {}
        for text in self.set:
            name, equals, value = text.partition("=")
            if not equals or not name.isidentifier():
                raise TrainError(f"--set takes NAME=VALUE, as in --set report_to=tensorboard; found {text!r}")
            try:
                arguments[name] = json.loads(value)
            except (ValueError, RecursionError):
                arguments[name] = value
        return arguments

    def changes(self) -> dict[str, Any]:
        """The settings of a recipe that these options replace, by the names of its fields."""
        return changed(
            batch_size=self.batch_size,
            gradient_accumulation_steps=self.gradient_accumulation,
            precision=self.precision,
            evals=self.evals,
        )


@dataclass(frozen=True, kw_only=True)
class TrainingOptions(OptimizationOptions):
    """How a model is optimized, at one learning rate."""

    learning_rate: float | None = option(None, "Peak learning rate.", metavar="X")

    def changes(self) -> dict[str, Any]:
        """The settings of a recipe that these options replace, by the names of its fields."""
        return {**super().changes(), **changed(learning_rate=self.learning_rate)}


def changed(**values: Any) -> dict[str, Any]:
    """The values that are not `None`, by name: those that replace a recipe's.

    >>> changed(batch_size=8, learning_rate=None)
    {'batch_size': 8}
    """
    return {name: value for name, value in values.items() if value is not None}
