"""A training that takes a moment."""

from pathlib import Path
from typing import Any

from layerwise.runner.reporter import Silent
from layerwise.runner.result import Result
from layerwise.studies.robustness.training_verb import train_robust


def tiny_training(model: Path, run: Path | None, method: str, **options: Any) -> Result:
    shared: dict[str, Any] = {"images": "digits", "limit": 20, "epochs": 1.0, "batch_size": 10, **options}
    return train_robust(model, methods=(method,), run=run, reporter=Silent(), **shared)
