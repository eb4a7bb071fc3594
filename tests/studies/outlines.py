"""Outlines of experiments, which say what they are before anything is computed; and a training that takes a moment."""

from pathlib import Path
from typing import Any

from layerwise.runner.experiment import Experiment, Inputs
from layerwise.runner.reporter import Silent
from layerwise.runner.steps import Outline
from layerwise.studies.robustness.options import RobustTraining


def outline_of(config: Experiment, inputs: Inputs | None = None) -> Outline:
    outline = next(config.begin(Silent(), inputs or Inputs()))
    assert isinstance(outline, Outline)
    return outline


def tiny_training(model: Path, run: Path, method: str, **options: Any) -> RobustTraining:
    shared: dict[str, Any] = {"images": "digits", "limit": 20, "epochs": 1.0, "batch_size": 10, **options}
    return RobustTraining(methods=(method,), model=str(model), run=run, **shared)
