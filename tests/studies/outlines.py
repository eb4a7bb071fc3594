"""Outlines of experiments, which say what they are before anything is computed; and a training that takes a moment."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from layerwise.runner import study
from layerwise.runner.experiment import Experiment, Inputs
from layerwise.runner.reporter import Silent
from layerwise.runner.result import Result
from layerwise.runner.steps import Outline
from layerwise.runner.study import RunDescription
from layerwise.runner.verb import from_command_line
from layerwise.studies.robustness.training_verb import train_robust


def outline_of(config: Experiment, inputs: Inputs | None = None) -> Outline:
    outline = next(config.begin(Silent(), inputs or Inputs()))
    assert isinstance(outline, Outline)
    return outline


def description_of(verb: Callable[..., object], *arguments: Any, **options: Any) -> RunDescription:
    """Return what a verb knows of its run before anything is computed."""
    seen: list[RunDescription] = []
    with pytest.MonkeyPatch.context() as patched, from_command_line(dry_run=True):
        patched.setattr(study, "_describe", lambda call, description, folder: seen.append(description))
        verb(*arguments, **options, reporter=Silent())
    (description,) = seen
    return description


def tiny_training(model: Path, run: Path | None, method: str, **options: Any) -> Result:
    shared: dict[str, Any] = {"images": "digits", "limit": 20, "epochs": 1.0, "batch_size": 10, **options}
    return train_robust(model, methods=(method,), run=run, reporter=Silent(), **shared)
