"""Experiments as `torchrun` starts them: every process performs all of them, into the folder that is given."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from layerwise.errors import MeasureError
from layerwise.experiments.cluster.ranks import assist, measuring
from layerwise.experiments.engines.steps import Outline
from layerwise.experiments.experiment import Inputs
from layerwise.experiments.reporter import Silent
from layerwise.experiments.robustness.config import RobustTraining
from layerwise.experiments.runner import perform
from layerwise.experiments.sweep.config import Sweep
from layerwise.measure.workers import Emit, Plain


def sweep_of(folder: Path, run: Path) -> Sweep:
    """Every window of the tiny model, on two tasks' worth of text."""
    return Sweep(
        model=str(folder / "model"),
        text=folder / "texts",
        families=("leave_one_out", "swap_adjacent"),
        batch_tokens=400,
        similarity=False,
        run=run,
    )


def training_of(folder: Path, run: Path) -> RobustTraining:
    """Two methods with two seeds, and the surveys of their four models."""
    return RobustTraining(
        methods=("layershuffle",),
        model=str(folder / "vit"),
        images="digits",
        limit=20,
        epochs=1.0,
        batch_size=10,
        seeds=2,
        run=run,
    )


def _failing(folder: Path, run: Path) -> None:
    """A piece that fails in the second process fails the measurement in the first, in the words of that process."""
    outline = next(sweep_of(folder, run).begin(Silent(), Inputs()))
    assert isinstance(outline, Outline)

    def carry_out(piece: Plain, emit: Emit) -> Plain:
        emit(piece)
        if os.environ["RANK"] == "1":
            raise MeasureError(f"piece {piece} cannot be measured")
        return piece

    outline = replace(outline, pieces=carry_out)
    if os.environ["RANK"] == "1":
        assist(outline)
        return
    heard: list[Plain] = []
    with measuring(outline) as spread:
        try:
            for _ in spread.map(range(10**6), carry_out, on_partial=lambda number, news: heard.append(news)):
                pass
        except MeasureError as error:
            (run.parent / "failure.txt").write_text(f"{error}; {len(heard) == len(set(heard))}")


def perform_all(root: Path) -> None:
    """Everything, one after the other."""
    perform(sweep_of(root, root / "sweep"), Silent())
    perform(training_of(root, root / "training"), Silent())
    _failing(root, root / "nothing")
