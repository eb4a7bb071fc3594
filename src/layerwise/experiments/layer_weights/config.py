"""The configuration of an analysis of layer weights: which edges are cut, and what they are evaluated on."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from layerwise.errors import MeasureError, RunError
from layerwise.experiments.experiment import Experiment, Inputs, Reads
from layerwise.experiments.option import option
from layerwise.experiments.options.data import DataOptions
from layerwise.experiments.options.model import DeviceOptions, Dtype
from layerwise.experiments.reporter import Reporter
from layerwise.results.run import is_run

if TYPE_CHECKING:
    from layerwise.experiments.layer_weights.run import PreparedLayerWeights


@dataclass(frozen=True, kw_only=True)
class LayerWeightAnalysis(DeviceOptions, DataOptions, Experiment):
    """Show learned layer weights, measure what each edge does, and cut those that do little.

    Every edge is cut alone and the rise of the loss is measured: its weight does not say what it does. What is left
    after a cut is evaluated on other examples than those that chose it, against as many edges cut at random and by
    size.
    """

    VERB: ClassVar = "layer-weights"
    EXAMPLES: ClassVar = (
        "runs/demo-vit-1a2b3c4d",
        "RUN/elc/seed-0/model --keep 0.3 --output sparse",
        "RUN/elc/seed-0/model --text FOLDER --tolerance 0.01",
    )
    READS: ClassVar = (
        Reads(
            ("rounds",), lambda config: config.cuts,
            "cutting reads it, and nothing is cut without --keep SHARE or --tolerance NATS",
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
        None, "Images in a split, or segments of a masked text in each half (256 by default), at most.", metavar="N",
        least=1,
    )  # fmt: skip
    dtype: Dtype = option("auto", "Data type; auto is the checkpoint's, float32 on a CPU.")
    overwrite: bool = option(False, "Discard the rows of the run folder, and replace what is at --output.")

    @property
    def cuts(self) -> bool:
        """Whether edges are cut, or only ranked."""
        return self.keep is not None or self.tolerance is not None

    def check(self) -> None:
        """Raise `MeasureError` for a cut that cannot be, and `RunError` for a run beside a run."""
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

    def prepare(self, reporter: Reporter, inputs: Inputs) -> PreparedLayerWeights:
        """Open a single model and read its examples; those of a run are opened when it is their turn."""
        from layerwise.experiments.layer_weights.run import PreparedLayerWeights

        return PreparedLayerWeights(self, reporter, inputs.corpus)
