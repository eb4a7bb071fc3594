"""What every experiment that trains models does with their folders: `RUN/ARM/seed-N/model`."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from layerwise.experiments.reporter import Reporter
from layerwise.results import Manifest, Run
from layerwise.results.training_record import trained_models


@dataclass(frozen=True, slots=True)
class TrainedModel:
    """A model of an experiment: its arm and seed, the folder that it is opened from, and that of its stored surveys."""

    arm: str
    seed: int
    folder: Path
    survey_folder: Path

    @property
    def label(self) -> str:
        """The subject of its rows.

        >>> TrainedModel("elc", 1, Path("run/elc/seed-1/model"), Path("run/elc/seed-1")).label
        'elc/1'
        """
        return f"{self.arm}/{self.seed}"


def finished_models(run: Path) -> tuple[TrainedModel, ...]:
    """Every model in a run folder whose training is finished, by arm and seed."""
    return tuple(
        TrainedModel(model.parts[-3], int(model.parts[-2].removeprefix("seed-")), model, model.parent)
        for model in trained_models(run)
    )


def manifest_of(run: Path) -> Manifest:
    """The manifest of the run in a folder. Raises `RunError` where there is none."""
    with Run.open(run) as opened:
        return opened.manifest


def discard_trainings(run: Path) -> None:
    """Remove every training in a run folder, finished or not."""
    for folder in run.glob("*/seed-*"):
        shutil.rmtree(folder)


def training_progress(reporter: Reporter, label: str) -> Callable[[int, int, float | None], None]:
    """A callback for the step, the number of steps and the loss of the training called `label`."""

    def progress(step: int, steps: int, loss: float | None) -> None:
        reporter.progress(label if loss is None else f"{label}  loss {loss:.3f}", step / steps)

    return progress
