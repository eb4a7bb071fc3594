"""Outlines of experiments, which say what they are before anything is computed; and a training that takes a moment."""

from pathlib import Path
from typing import Any

from layerwise.runner.experiment import Experiment, Inputs
from layerwise.runner.reporter import Silent
from layerwise.runner.result import Result
from layerwise.runner.steps import Outline
from layerwise.studies.robustness.training_verb import train_robust


def outline_of(config: Experiment, inputs: Inputs | None = None) -> Outline:
    outline = next(config.begin(Silent(), inputs or Inputs()))
    assert isinstance(outline, Outline)
    return outline


def tiny_training(model: Path, run: Path | None, method: str, **options: Any) -> Result:
    shared: dict[str, Any] = {"images": "digits", "limit": 20, "epochs": 1.0, "batch_size": 10, **options}
    return train_robust(model, methods=(method,), run=run, reporter=Silent(), **shared)
