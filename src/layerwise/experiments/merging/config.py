"""Merging: which models are put together from the layers of several, and what they are evaluated on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from layerwise.experiments.experiment import Experiment
from layerwise.experiments.option import option
from layerwise.experiments.options.data import DataOptions
from layerwise.experiments.options.model import DeviceOptions, Dtype


@dataclass(frozen=True, kw_only=True)
class Merging(DeviceOptions, DataOptions, Experiment):
    """Merge models layer by layer, many times at random, and compare the merged models with those they are made of.

    The models of each way of training are merged among themselves. They are called a, b, c, ... in the order given.
    One merged model of your own is written by layerwise save MODELS --plan "a:0-5 b:6-11" --output FOLDER.
    """

    VERB: ClassVar = "merge"
    RUNS: ClassVar = "merging.run:merging"
    EXAMPLES: ClassVar = ("runs/vit-base-patch16-224-1a2b3c4d --draws 100", "FOLDER1 FOLDER2 --images FOLDER")
    PRESETS: ClassVar = {"paper": {"draws": 100, "select_on": "reported"}}

    models: tuple[str, ...] = option(
        help="Runs of `layerwise train robust`, folders, hub ids.",
        metavar="RUN_OR_MODEL",
        positional=True,
        repeated=True,
        is_location=True,
    )
    draws: int = option(100, "Merged models of each kind.", metavar="N", least=1, most=100_000)
    arm: str | None = option(None, "Merge only the models of this arm.", metavar="NAME")
    dtype: Dtype = option("auto", "Data type; stored is the checkpoint's, and auto too, but float32 on a CPU.")
