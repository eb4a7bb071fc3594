"""The configuration of an analysis of layer weights: which edges are cut, and what they are evaluated on."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from layerwise.errors import DataError, MeasureError, RunError, near_matches
from layerwise.experiments.evaluation.config import GENERATED, PAIRS
from layerwise.experiments.experiment import Experiment, Reads
from layerwise.experiments.option import option
from layerwise.experiments.options.common import DataOptions, DeviceOptions, Dtype
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

    VERB: ClassVar = "diagnose layer-weights"
    RUNS: ClassVar = "layer_weights.run:layer_weights"
    EXAMPLES: ClassVar = (
        "RUN --keep 0.3",
        "MODEL --text FOLDER --tolerance 0.01",
        "RUN --suite pairs,msgs-ours",
    )
    READS: ClassVar = (Reads(("text", "validation", "test", "clean", "images", "max_length"), "!suite"),)

    model: str = option(
        help="Run with trained models, or the folder of one model.", metavar="RUN_OR_MODEL", positional=True,
        is_location=True,
    )  # fmt: skip
    keep: float | None = option(None, "Share of the edges to keep.", metavar="SHARE", needs="!suite", above=0, most=1)
    tolerance: float | None = option(
        None, "Cut until the loss has risen by so much, in nats.", metavar="NATS", needs="!suite", least=0
    )
    rounds: int = option(
        1, "How often the edges that are left are ranked anew.", metavar="N", least=1, most=1_000,
        needs=("keep", "tolerance"), setting=True,
    )  # fmt: skip
    output: Path | None = option(None, metavar="PATH", needs="!suite")
    limit: int | None = option(
        None, metavar="N", least=1, rare=True,
    )  # fmt: skip
    suite: tuple[str, ...] = option((), metavar="NAMES")
    data: Path | None = option(None, metavar="FOLDER", needs="suite")
    password: str | None = option(None, metavar="TEXT", needs="suite", setting=True)
    tasks: tuple[str, ...] = option((), metavar="NAMES", rare=True, needs="suite=msgs|msgs-ours")
    learning_rate: float = option(
        3e-4, "Learning rate of the fine-tuning on those tasks.", metavar="X", needs="suite=msgs|msgs-ours",
        setting=True, above=0)  # fmt: skip
    removal: Literal["renormalise", "zero"] = option(
        "renormalise",
        "What the rest of a row does when one of its weights is set to zero: sum to one again, or stay.",
        needs="suite", setting=True,
    )  # fmt: skip
    dtype: Dtype = option("auto", rare=True)
    overwrite: bool = option(False)

    @property
    def cuts(self) -> bool:
        """Whether edges are cut, or only ranked."""
        return self.keep is not None or self.tolerance is not None

    def check(self) -> None:
        """Raise `MeasureError` for a cut that cannot be, and `RunError` for a run beside a run."""
        for name in self.suite:
            if name not in SUITES:
                raise DataError(f"edges cannot be cut for {name!r}; {near_matches(name, SUITES)}")
            if name not in GENERATED and self.data is None:
                raise DataError(f"{name} is not part of layerwise: give the folder that holds its files, --data FOLDER")
        if self.output is not None and not self.cuts:
            raise MeasureError(
                f"nothing is cut that could be written to {self.output}: give --keep SHARE or --tolerance NATS"
            )
        if self.run is not None and is_run(self.model):
            raise RunError(f"the rows go into the run that was given, {self.model}: leave out --run {self.run}")
