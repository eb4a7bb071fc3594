"""Experiments as `torchrun` starts them: every process performs all of them, into the folder that is given."""

import os
from pathlib import Path

import layerwise
from layerwise.errors import TrainError
from layerwise.runner.reporter import Silent
from studies.outlines import tiny_training


def perform_all(root: Path) -> None:
    tiny_training(root / "vit", root / "training", "layershuffle", seeds=2)
    try:
        layerwise.sweep(root / "model", root / "texts", run=root / "sweep", reporter=Silent())
    except TrainError as error:
        (root / f"refusal-{os.environ['RANK']}.txt").write_text(str(error))
