"""The configuration of an analysis of layer weights: which edges are cut, and what they are evaluated on."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from layerwise.errors import DataError, MeasureError, RunError, near_matches
from layerwise.experiments.evaluation.config import GENERATED, PAIRS
from layerwise.experiments.experiment import Experiment, Reads
from layerwise.experiments.option import option
from layerwise.experiments.options.data import DataOptions
from layerwise.experiments.options.model import DeviceOptions, Dtype
from layerwise.results.run import is_run

MSGS = ("msgs", "msgs-ours")
SUITES = (*PAIRS, *MSGS)
"""The suites whose phenomena edges are cut for: minimal pairs, and features that a model is fine-tuned on."""


@dataclass(frozen=True, kw_only=True)
class LayerWeightAnalysis(DeviceOptions, DataOptions, Experiment):
    """Show learned layer weights, measure what each edge does, and cut those that do little.

    Every edge is cut alone and the rise of the loss is measured: its weight does not say what it does. What is left
    after a cut is evaluated on other examples than those that chose it, against as many edges cut at random and by
    size. With --suite each edge is cut for every phenomenon of a suite, and for surface and linguistic features.
    """

    VERB: ClassVar = "layer-weights"
    RUNS: ClassVar = "layer_weights.run:layer_weights"
    EXAMPLES: ClassVar = (
        "runs/demo-vit-1a2b3c4d",
        "RUN/elc/seed-0/model --keep 0.3 --output sparse",
        "RUN/elc/seed-0/model --text FOLDER --tolerance 0.01",
        "RUN --suite pairs,msgs-ours",
        "RUN --suite blimp --data FOLDER --limit 20",
    )
    READS: ClassVar = (
        Reads(
            ("rounds",), lambda config: config.cuts,
            "cutting reads it, and nothing is cut without --keep SHARE or --tolerance NATS",
        ),
        Reads(
            ("tasks", "learning_rate"), lambda config: bool(set(config.suite) & set(MSGS)),
            f"it goes with --suite {' or '.join(MSGS)}",
        ),
        Reads(("removal", "data", "password"), lambda config: bool(config.suite), "it goes with --suite"),
        Reads(
            ("text", "validation", "test", "clean", "images", "max_length", "keep", "tolerance", "output"),
            lambda config: not config.suite, "with --suite edges are asked about its pairs and sentences alone",
        ),
    )  # fmt: skip

    model: str = option(
        help="Run with trained models, or the folder of one model.",
        metavar="RUN_OR_MODEL",
        positional=True,
        is_location=True,
    )
    keep: float | None = option(None, "Share of the edges to keep.", metavar="SHARE")
    tolerance: float | None = option(None, "Cut until the loss has risen by so much, in nats.", metavar="NATS")
    rounds: int = option(1, "How often the edges that are left are ranked anew.", metavar="N", least=1, most=1_000)
    output: Path | None = option(
        None, "Folder for the sparse model, or a .json file for its edges alone.", metavar="PATH"
    )
    limit: int | None = option(
        None, "Images in a split, segments of a masked text in each half (256 by default), or pairs of a paradigm (40) "
        "and sentences of a task (200), at most.", metavar="N", least=1,
    )  # fmt: skip
    suite: tuple[str, ...] = option(
        (), f"Suites whose phenomena edges are cut for, from: {', '.join(SUITES)}.", metavar="NAMES"
    )
    data: Path | None = option(None, "Folder of the files of published suites.", metavar="FOLDER")
    password: str | None = option(None, "Password of EWoK's archive.", metavar="TEXT")
    tasks: tuple[str, ...] = option((), "Tasks of msgs and msgs-ours; all by default.", metavar="NAMES")
    learning_rate: float = option(3e-4, "Learning rate of the fine-tuning on those tasks.", metavar="X")
    removal: Literal["renormalise", "zero"] = option(
        "renormalise", "What the rest of a row does when one of its weights is set to zero: sum to one again, or stay."
    )
    dtype: Dtype = option("auto", "Data type; stored is the checkpoint's, and auto too, but float32 on a CPU.")
    overwrite: bool = option(False, "Discard the rows of the run folder, and replace what is at --output.")

    @property
    def cuts(self) -> bool:
        """Whether edges are cut, or only ranked."""
        return self.keep is not None or self.tolerance is not None

    def check(self) -> None:
        """Raise `MeasureError` for a cut that cannot be, and `RunError` for a run beside a run."""
        if not self.learning_rate > 0:
            raise MeasureError(f"--learning-rate is above 0, such as 3e-4, not {self.learning_rate:g}")
        for name in self.suite:
            if name not in SUITES:
                raise DataError(f"edges cannot be cut for {name!r}; {near_matches(name, SUITES)}")
            if name not in GENERATED and self.data is None:
                raise DataError(f"{name} is not part of layerwise: give the folder that holds its files, --data FOLDER")
        if self.output is not None and not self.cuts:
            raise MeasureError(
                f"nothing is cut that could be written to {self.output}: give --keep SHARE or --tolerance NATS"
            )
        if self.keep is not None and not 0 < self.keep <= 1:
            raise MeasureError(f"--keep is the share of the edges to keep, between 0 and 1, not {self.keep:g}")
        if self.tolerance is not None and self.tolerance < 0:
            raise MeasureError(f"--tolerance is a rise of the loss in nats, 0 or more, not {self.tolerance:g}")
        if self.run is not None and is_run(self.model):
            raise RunError(f"the rows go into the run that was given, {self.model}: leave out --run {self.run}")
