"""Configurations of robustness (models, layer orders and subsets) and of merging (members, evaluation data)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

from layerwise.errors import RunError, TrainError, near_matches
from layerwise.plan.checks import LAYER_LIMIT
from layerwise.results.run import is_run
from layerwise.results.training_record import RETRAINED
from layerwise.runner.experiment import Alternatives, Experiment, Reads
from layerwise.runner.option import option
from layerwise.runner.options.common import (
    BaseModelOptions,
    DataOptions,
    DeviceOptions,
    Dtype,
    ModelOptions,
    PublishingOptions,
)
from layerwise.runner.options.training import TrainingOptions
from layerwise.runner.training_options import changed
from layerwise.train.methods import METHODS, READ_BY, Options, recipes
from layerwise.train.methods.layershuffle import PositionOptions, PredictionOptions
from layerwise.train.methods.method import DropSync
from layerwise.train.recipe import Recipe, Settings
from layerwise.train.variant import Variant

Augmentation = Literal["none", "crop", "crop+flip"]
DEMO = "demo-vit"
OTHER_TRAININGS = ("elc", "growth")
"""Ways of training that have a command of their own."""


def _read_by_methods(name: str) -> Reads:
    readers = READ_BY[name]

    def when(config: Any) -> bool:
        return not set(named_methods(config.methods)).isdisjoint(readers)

    listed = " and ".join([", ".join(readers[:-1]), readers[-1]]) if len(readers) > 1 else readers[0]
    return Reads((name,), when, f"it is read by {listed}, and none of them is trained")


@dataclass(frozen=True, kw_only=True)
class RobustTraining(BaseModelOptions, DataOptions, TrainingOptions, PublishingOptions, Experiment):
    """Train a model to work in any order of its layers, without some of them, or with learned layer weights.

    Each method is trained beside the baseline, with several seeds, validated on one split and evaluated on another. If
    interrupted, run the same command again to resume. Without options the settings of the optimizer, its batches and
    epochs are the LayerShuffle paper's, which trains five models of each kind (--seeds 5). With --learning-rates, and
    --set batch_sizes, validation chooses them for each method, on trials with a seed of their own.
    """

    VERB: ClassVar = "train robust"
    RUNS: ClassVar = "robustness.steps:robust_training"
    EXAMPLES: ClassVar = (
        "layershuffle --model demo-vit",
        "layershuffle,layerdrop --model MODEL --images FOLDER",
        "all,retrained-9,6,3 --model MODEL --images FOLDER",
    )
    ALTERNATIVES: ClassVar = (
        Alternatives(("learning_rate", "learning_rates"), "say at which rate to train"),
        Alternatives(("batch_size", "batch_sizes"), "say how many examples a step has"),
    )
    READS: ClassVar = (
        *map(_read_by_methods, READ_BY),
        Reads(
            ("evals",),
            lambda config: set(named_methods(config.methods)) != {"baseline"},
            "the baseline is validated once, at its end",
        ),
    )

    methods: tuple[str, ...] = option(
        help=f"Methods, from: {', '.join(METHODS)}, {RETRAINED}-K (several: {RETRAINED}-9,6,3); or all, which leaves "
        f"{RETRAINED}-K out.",
        metavar="METHODS",
        positional=True,
    )
    baseline: bool = option(True, rare=True)
    seeds: int = option(3, metavar="N", least=1, most=1_000)
    epochs: float | None = option(None, metavar="X")
    learning_rates: tuple[float, ...] = option((), metavar="NUMBERS", rare=True, above=0)
    batch_sizes: tuple[int, ...] = option(
        (), "Examples in a step, of which validation chooses for each method.", metavar="NUMBERS", setting=True, least=1
    )
    lr_schedule: Literal["linear", "cosine", "constant"] | None = option(None, "Learning-rate schedule.", setting=True)
    augmentation: Augmentation | None = option(None, "Augmentation of the training images.", rare=True)
    pack: bool = option(
        False, "Pack short texts side by side, each by itself, so that no step computes padding.", setting=True
    )
    new_head: bool = option(
        False, "Replace the classification head by a new one for the classes of the images.", rare=True
    )
    drop_rate: float | None = option(None, "Share of layers that LayerDrop leaves out.", metavar="X", setting=True)
    max_shift: int | None = option(
        None, "Positions that a shuffled layer may move; by default any.", metavar="N", least=1, setting=True
    )
    drop_sync: DropSync = option(
        "shared", "Layers left out on several processes: the same, each its own, or computed and masked.", setting=True
    )
    position_table: Literal["per-layer", "shared"] = option(
        "per-layer", "Embeddings of layershuffle-position; its published code has shared ones.", setting=True
    )
    position_dropout: float = option(
        0.0,
        "Dropout in layershuffle-position, whose paper states no rate.",
        metavar="X",
        least=0,
        setting=True,
        below=1,
    )
    prediction_loss: Literal["sum", "mean"] = option(
        "sum", "Loss of layershuffle-predict over layers; its published code takes the mean.", setting=True
    )
    prediction_token: Literal["first", "mean"] = option(
        "first", "Token that layershuffle-predict classifies; its published code takes the mean of all.", setting=True
    )

    def check(self) -> None:
        for name in named_methods(self.methods):
            _check_method(name)
        self.recipes(Settings(), LAYER_LIMIT)
        self.trainer_arguments(self.device)
        self.check_repository()

    def options(self, settings: Settings) -> Options:
        given = changed(
            epochs=self.epochs,
            batch_size=self.batch_size,
            gradient_accumulation_steps=self.gradient_accumulation,
            learning_rate=self.learning_rate,
            schedule=self.lr_schedule,
            augmentation=self.augmentation,
            precision=self.precision,
            evals=self.evals,
            compiled=self.compile or None,
        )
        variants: tuple[Variant, ...] = (
            PositionOptions(table=self.position_table, dropout=float(self.position_dropout)),
            PredictionOptions(self.prediction_loss, self.prediction_token),
        )
        options = Options(
            replace(settings, **given), max_shift=self.max_shift, drop_sync=self.drop_sync, variants=variants
        )
        return replace(options, **changed(drop_rate=self.drop_rate))

    def recipes(self, settings: Settings, depth: int) -> tuple[Recipe, ...]:
        """The recipe of every method for a model of `depth` layers, the baseline's first where it is trained too."""
        first = ("baseline",) if self.baseline else ()
        return recipes(dict.fromkeys((*first, *named_methods(self.methods))), self.options(settings), depth)


def named_methods(names: Iterable[str]) -> tuple[str, ...]:
    """The methods that are named, each once: `all` stands for every one, a number after retrained-K for another depth.

    >>> named_methods(["layershuffle", "retrained-9", "6", "3"])
    ('layershuffle', 'retrained-9', 'retrained-6', 'retrained-3')
    """
    methods: list[str] = []
    for name in names:
        if name == "all":
            methods += METHODS
        elif name.isdecimal() and methods and methods[-1].startswith(f"{RETRAINED}-"):
            methods.append(f"{RETRAINED}-{name}")
        else:
            methods.append(name)
    return tuple(dict.fromkeys(methods))


def _check_method(name: str) -> None:
    if name in OTHER_TRAININGS:
        raise TrainError(
            f"{name} has a command of its own, and takes no other method beside it: layerwise train {name}"
        )
    if name not in METHODS and not name.startswith(RETRAINED):
        known = near_matches(name, (*METHODS, *OTHER_TRAININGS))
        raise TrainError(f"there is no way of training called {name[:40]!r}; {known}, {RETRAINED}-K")


@dataclass(frozen=True, kw_only=True)
class Robustness(ModelOptions, DataOptions, Experiment):
    """Measure what a model survives: other orders, missing layers.

    What each layer does at each position is measured too. Every model of a run of `layerwise train robust` is
    evaluated, and they are compared. demo-vit trains them first (minutes).
    """

    VERB: ClassVar = "robustness"
    RUNS: ClassVar = "robustness.steps:robustness"
    EXAMPLES: ClassVar = (
        DEMO,
        "runs/vit-base-patch16-224-1a2b3c4d",
        "google/vit-base-patch16-224 --images FOLDER",
    )
    READS: ClassVar = (
        Reads(
            ("tokenizer", "layers", "revision", "trust_remote_code"),
            lambda config: not is_run(config.model),
            "a run was given, and its models are opened as they were trained",
        ),
        Reads(
            ("dtype",),
            lambda config: config.model != DEMO,
            "demo-vit's models are trained, and evaluated, in float32",
        ),
    )

    model: str = option(
        help="Run of `layerwise train robust`, hub id, folder, or demo-vit.",
        metavar="RUN_OR_MODEL",
        positional=True,
        is_location=True,
    )
    orders: int = option(100, "Fixed orders, each over all examples.", metavar="N", least=1, most=100_000, rare=True)
    draws: int = option(16, metavar="N", least=1)
    nodes: tuple[int, ...] = option(
        (2, 4),
        "Numbers of nodes that the layers lie on, each of which is lost.",
        metavar="N,N,...",
        least=2,
        most=1_000,
        rare=True,
    )
    inside_images: int = option(
        100,
        "Images whose outputs are laid out by UMAP; the paper has 1,000.",
        metavar="N",
        least=1,
        most=100_000,
        rare=True,
    )
    inside_layers: tuple[int, ...] = option(
        (),
        "Layers whose outputs are laid out together; all of them by default.",
        metavar="N,N,...",
        least=0,
        setting=True,
    )
    seeds: int = option(3, metavar="N", least=1, most=1_000, rare=True, needs="model=demo-vit")

    def check(self) -> None:
        if self.run is not None and is_run(self.model):
            raise RunError(f"the results go into the run that was given, {self.model}: leave out --run {self.run}")


@dataclass(frozen=True, kw_only=True)
class Merging(DeviceOptions, DataOptions, Experiment):
    """Merge models layer by layer, many times at random, and compare the merged models with those they are made of.

    The models of each way of training are merged among themselves. They are called a, b, c, ... in the order given.
    One merged model of your own is written by layerwise save MODELS --plan "a:0-5 b:6-11" --output FOLDER.
    """

    VERB: ClassVar = "robustness merge"
    RUNS: ClassVar = "robustness.merge_steps:merging"
    EXAMPLES: ClassVar = ("runs/vit-base-patch16-224-1a2b3c4d --draws 100", "FOLDER1 FOLDER2 --images FOLDER")

    models: tuple[str, ...] = option(
        help="Runs of `layerwise train robust`, folders, hub ids.",
        metavar="RUN_OR_MODEL",
        positional=True,
        repeated=True,
        is_location=True,
    )
    draws: int = option(100, metavar="N", least=1, most=100_000)
    arm: str | None = option(None, metavar="NAME", rare=True)
    dtype: Dtype = option("auto", rare=True)
