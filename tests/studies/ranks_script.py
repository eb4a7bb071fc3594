"""Experiments as `torchrun` starts them: every process performs all of them, into the folder that is given."""

import os
from pathlib import Path

from layerwise.errors import TrainError
from layerwise.runner.perform import perform
from layerwise.runner.reporter import Silent
from layerwise.studies.sweep.options import Sweep
from studies.outlines import tiny_training


def perform_all(root: Path) -> None:
    tiny_training(root / "vit", root / "training", "layershuffle", seeds=2)
    try:
        perform(Sweep(model=str(root / "model"), text=root / "texts", run=root / "sweep"), Silent())
    except TrainError as error:
        (root / f"refusal-{os.environ['RANK']}.txt").write_text(str(error))
