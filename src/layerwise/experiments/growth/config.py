"""The configuration of a training in phases: which model, which schedule, at whose cost."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from layerwise.experiments.experiment import Alternatives, Experiment
from layerwise.experiments.growth.schedule_source import ScheduleSource, schedule_source
from layerwise.experiments.option import option
from layerwise.experiments.options.data import CorpusOptions
from layerwise.experiments.options.model import LoadingOptions
from layerwise.experiments.options.run import ClusterOptions, PublishingOptions
from layerwise.experiments.options.training import (
    OptimizationOptions,
    TrainingOptions,
    seeds_option,
    steps_option,
)

UNIFORM = "uniform"
"""The schedule in which everything learns all the time."""

MAX_EPOCHS = 2.0
"""A text that is read more often is memorized, and says nothing of a schedule."""


@dataclass(frozen=True, kw_only=True)
class GrowthExperiment(LoadingOptions, CorpusOptions, OptimizationOptions, ClusterOptions, Experiment):
    """What every experiment has that trains one decoder in phases, at the cost of uniform training.

    Without a model it is one of `size` with random weights, and without a text the standard library's prose.
    """

    ALTERNATIVES: ClassVar = (Alternatives(("steps", "epochs"), "say how long to train"),)

    model: str | None = option(
        None, "A checkpoint, or a config.json alone, which begins from random weights; by default that of --size.",
        metavar="MODEL", is_location=True,
    )  # fmt: skip
    size: Literal["tiny", "published"] = option(
        "tiny", needs="!model",
    )  # fmt: skip
    from_scratch: bool = option(False, "Draw new random weights in place of those of a checkpoint.", rare=True)
    max_length: int | None = option(None, metavar="N", least=2, rare=True)
    max_epochs: float = option(MAX_EPOCHS, "How often a training may read the text.", metavar="X", rare=True, above=0)
    seeds: int = seeds_option(1)
    steps: int | None = steps_option()
    epochs: float | None = option(None, metavar="X", above=0)

    def check(self) -> None:
        """Raise `TrainError` for `--set` of another form than NAME=VALUE."""
        self.trainer_arguments(self.device)


@dataclass(frozen=True, kw_only=True)
class GrowthTraining(TrainingOptions, PublishingOptions, GrowthExperiment):
    """Train a model in phases, each on the layers that a schedule names, and uniformly beside it.

    --steps and --epochs are those of uniform training; --match says what the schedule spends as much of. Without a
    model and a text a tiny model with random weights reads the standard library's prose. If interrupted, run the same
    command again to resume.
    """

    VERB: ClassVar = "train growth"
    RUNS: ClassVar = "growth.run:growth"
    EXAMPLES: ClassVar = (
        "--dry-run",
        "--schedule stacking --seeds 3",
        "--size published --steps 656 --match tokens --dry-run",
        "--model CHECKPOINT --schedule importance --importance RUN",
    )

    schedule: str = option(
        "published", "One of uniform, published, freezing, stacking, lisa, ramp, importance; or a YAML file.",
        metavar="NAME",
    )  # fmt: skip
    importance: Path | None = option(
        None, "A run of layerwise diagnose, for the schedule importance.", metavar="RUN", rare=True
    )
    match: Literal["tokens", "flops", "seconds"] = option(
        "flops", "What the schedule spends as much of as uniform training.", rare=True, needs="!schedule=uniform"
    )
    baseline: bool = option(True, rare=True, needs="!schedule=uniform")

    def check(self) -> None:
        """Raise `PlanError` for a schedule that there is not, and `RunError` for importance without a run."""
        super().check()
        self.check_repository()
        self.source()

    def source(self) -> ScheduleSource:
        """Where the schedule comes from: a preset, a file, or a diagnosis."""
        return schedule_source(self.schedule, self.importance)
