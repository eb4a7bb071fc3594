"""Merging: which models are put together from the layers of several, and what they are evaluated on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from layerwise.experiments.experiment import Experiment
from layerwise.experiments.option import option
from layerwise.experiments.options.common import DataOptions, DeviceOptions, Dtype


@dataclass(frozen=True, kw_only=True)
class Merging(DeviceOptions, DataOptions, Experiment):
    """Merge models layer by layer, many times at random, and compare the merged models with those they are made of.

    The models of each way of training are merged among themselves. They are called a, b, c, ... in the order given.
    One merged model of your own is written by layerwise save MODELS --plan "a:0-5 b:6-11" --output FOLDER.
    """

    VERB: ClassVar = "robustness merge"
    RUNS: ClassVar = "merging.run:merging"
    EXAMPLES: ClassVar = ("runs/vit-base-patch16-224-1a2b3c4d --draws 100", "FOLDER1 FOLDER2 --images FOLDER")

    models: tuple[str, ...] = option(
        help="Runs of `layerwise train robust`, folders, hub ids.", metavar="RUN_OR_MODEL", positional=True,
        repeated=True, is_location=True,
    )  # fmt: skip
    draws: int = option(100, metavar="N", least=1, most=100_000)
    arm: str | None = option(None, metavar="NAME", rare=True)
    dtype: Dtype = option("auto", rare=True)
