"""Options of verbs that train: the data, and arguments of the Trainer of transformers."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal

from layerwise.errors import TrainError
from layerwise.results import Manifest
from layerwise.train.precision import Precision, default_precision, recorded_precision

HeldOut = Literal["held-out", "reported"]
BadImages = Literal["refuse", "skip"]


@dataclass(frozen=True, slots=True)
class TrainingData:
    """The text or images of a training run.

    Args:
        text: Text to train on.
        validation: Text for selecting checkpoints.
        test: Text for the reported results.
        images: Images to train on.
        on_bad_image: Handling of unreadable images.
        max_length: Maximum length of a text in tokens.
        limit: Maximum number of images per split.
        select_on: Whether checkpoints are selected on held-out examples or on the test examples.
    """

    text: Path | None = None
    validation: Path | None = None
    test: Path | None = None
    images: str | None = None
    on_bad_image: BadImages = "refuse"
    max_length: int | None = None
    limit: int | None = None
    select_on: HeldOut = "held-out"

    def as_trained(self, manifest: Manifest) -> TrainingData:
        """Fill in settings from the manifest of an earlier training run.

        Its texts or images are only used if this object has neither.
        """
        sources = {"text", "validation", "test", "images"}
        replaced = {name for name in (each.name for each in fields(self)) if getattr(self, name) != _DEFAULTS[name]}
        missing = _DEFAULTS.keys() - replaced - (sources if replaced & sources else set())
        recorded = {name: manifest.experiment[name] for name in missing if name in manifest.experiment}
        paths = {"text", "validation", "test"}
        values: dict[str, Any] = {name: Path(value) if name in paths else value for name, value in recorded.items()}
        return replace(self, **values)


_DEFAULTS: Mapping[str, Any] = {each.name: each.default for each in fields(TrainingData)}


def trainer_arguments(settings: Sequence[str], *, device: str) -> dict[str, Any]:
    """Parse settings of the form NAME=VALUE into keyword arguments of `TrainingArguments`. Values can be JSON.

    Example:
        >>> trainer_arguments(["report_to=tensorboard", "dataloader_num_workers=4"], device="auto")
        {'report_to': 'tensorboard', 'dataloader_num_workers': 4}
    """
    arguments: dict[str, Any] = {"use_cpu": True} if device == "cpu" else {}
    for text in settings:
        name, equals, value = text.partition("=")
        if not equals or not name.isidentifier():
            raise TrainError(f"--set must be NAME=VALUE, such as report_to=tensorboard, got {text!r}.")
        try:
            arguments[name] = json.loads(value)
        except (ValueError, RecursionError):
            arguments[name] = value
    return arguments


def resolve_precision(
    precision: Precision | None, arguments: Mapping[str, Any], *, device: str, run: Path | None
) -> Precision:
    """Return the precision that was given, or else that of the run to resume, or else the default of the device.

    If no precision was given, but `arguments` (for `TrainingArguments`) set half precision, return float32.
    """
    if precision is not None:
        return precision
    if {"bf16", "fp16"} & arguments.keys():
        return "float32"
    return (run and recorded_precision(run)) or default_precision(device)


def drop_none(**values: Any) -> dict[str, Any]:
    """Return the keyword arguments that are not None.

    Example:
        >>> drop_none(batch_size=8, learning_rate=None)
        {'batch_size': 8}
    """
    return {name: value for name, value in values.items() if value is not None}
