"""The configuration of the study of layer weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from layerwise.experiments.experiment import Inputs
from layerwise.experiments.options.training import seeds_option
from layerwise.experiments.pretraining.config import PretrainingExperiment
from layerwise.experiments.reporter import Reporter

if TYPE_CHECKING:
    from layerwise.experiments.layer_weights_study.run import PreparedLayerWeightsStudy


@dataclass(frozen=True, kw_only=True)
class LayerWeightsStudy(PretrainingExperiment):
    """Study whether learned layer weights are worth it: with and without them, and how they begin.

    Arms are compared at equal steps and at equal seconds, with weights in pretraining, in fine-tuning and in both, and
    seeds are compared for the weights that they learn. Every difference has its interval over seeds. The tiny model is
    trained for 400 steps unless --steps says otherwise. If interrupted, run the same command again to resume.
    """

    VERB: ClassVar = "study layer-weights"
    EXAMPLES: ClassVar = ("", "--text FOLDER --size small --seeds 5")

    seeds: int = seeds_option(3)

    def prepare(self, reporter: Reporter, inputs: Inputs) -> PreparedLayerWeightsStudy:
        """Read the text, learn the tokenizer or open the one that is named, and encode."""
        reporter.log("loading torch")
        from layerwise.experiments.layer_weights_study.run import PreparedLayerWeightsStudy

        return PreparedLayerWeightsStudy(self, reporter, inputs.corpus)
