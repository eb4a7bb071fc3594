"""The configuration of the study of growth."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from layerwise.runner.experiment import Reads
from layerwise.runner.option import option
from layerwise.runner.options.training import seeds_option
from layerwise.studies.train_growth.options import GrowthExperiment
from layerwise.studies.train_growth.study_arms import ARMS, HALF_BUDGET, ordered_arms, shortened


@dataclass(frozen=True, kw_only=True)
class GrowthStudy(GrowthExperiment):
    """Study whether training layers where they need it helps: a schedule, its controls, and uniform training.

    --steps and --epochs are those of uniform training; every arm spends as many operations, and is compared at equal
    operations and at equal seconds. Learning rates are swept for both sides. Without a model and a text a tiny model
    with random weights reads the standard library's prose. If interrupted, run the same command again to resume.
    """

    VERB: ClassVar = "train growth-study"
    RUNS: ClassVar = "train_growth.study_steps:growth_study"
    READS: ClassVar[tuple[Reads, ...]] = (
        Reads(
            ("shorter",), lambda config: bool(shortened(config.chosen_arms())), "the arms published and importance do"
        ),
    )
    EXAMPLES: ClassVar = (
        "",
        "--model CONFIG --text FOLDER --precision bfloat16",
        "--model CHECKPOINT --text FOLDER",
    )

    arms: tuple[str, ...] = option((), f"Some of {', '.join(ARMS)}; by default all.", metavar="NAMES")
    learning_rates: tuple[float, ...] = option((), metavar="NUMBERS", above=0)
    warmups: tuple[float, ...] = option(
        (),
        "Shares of the steps to warm up over, tried at the best rate; by default the usual one, its half and its "
        "double, where rates are swept.",
        metavar="NUMBERS",
        setting=True,
        least=0,
        below=1,
    )
    shorter: float = option(
        HALF_BUDGET,
        "Share of uniform's steps that the published schedule is also trained for.",
        metavar="SHARE",
        setting=True,
        above=0,
        below=1,
    )
    sweep_seeds: int = option(
        1, "Seeds that every learning rate is tried with.", metavar="N", least=1, most=1_000, setting=True
    )
    seeds: int = seeds_option(3)

    def check(self) -> None:
        super().check()
        self.chosen_arms()

    def chosen_arms(self) -> tuple[str, ...]:
        return ordered_arms(self.arms or ARMS)
