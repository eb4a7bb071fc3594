"""Experiments as `torchrun` starts them: every process performs all of them, into the folder that is given."""

import os
from pathlib import Path

from experiments.outlines import tiny_training
from layerwise.errors import TrainError
from layerwise.experiments.reporter import Silent
from layerwise.experiments.robustness.config import RobustTraining
from layerwise.experiments.runner import perform
from layerwise.experiments.sweep.config import Sweep


def training_of(folder: Path, run: Path) -> RobustTraining:
    return tiny_training(folder / "vit", run, "layershuffle", seeds=2)


def perform_all(root: Path) -> None:
    perform(training_of(root, root / "training"), Silent())
    try:
        perform(Sweep(model=str(root / "model"), text=root / "texts", run=root / "sweep"), Silent())
    except TrainError as error:
        (root / f"refusal-{os.environ['RANK']}.txt").write_text(str(error))
