"""Recipes: everything that decides a training, as one frozen value.

`Settings` are the knobs of the optimisation and have the same meaning for every method; `Recipe` adds the method: which
plan each pass runs under, what the layers are told or asked about their position, and what validation chooses by. The
functions below return complete recipes, one for each way of training that the literature compares.

    baseline                 in order, one epoch: the model as it was, refined as little as the paper refines it
    sequential               in order, for as long as the others: what the training itself is worth
    layershuffle             a uniform permutation for every batch (Freiberger et al. 2024, section 3.2)
    layershuffle-position    the same, and every layer is told its current position (section 3.3)
    layershuffle-predict     the same, and every layer must say its current position (section 3.4)
    layerdrop                every layer left out with probability 0.2 (Fan et al. 2019)
    layerdrop-scratch        LayerDrop from random weights; its authors say that fine-tuning alone is not enough
    layershuffle-layerdrop   both at once, which the paper does not try
    failout                  whole nodes of layers lost at once (Yousefpour et al. 2020)
    wiring-softmax           in order, every layer reading a learned mean of all states before it, as in ELC-BERT
                             (Charpentier and Samuel 2023)
    wiring-identity          the same with weights of any sign that begin as the plain model, and a mix before the head,
                             as in DenseFormer (Pagliardini et al. 2024)
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from layerwise.errors import TrainError, near_matches
from layerwise.plan import Plan
from layerwise.plan.growth import GrowthSchedule
from layerwise.plan.growth.cost import ModelCost
from layerwise.plan.keeping import kept
from layerwise.plan.samplers import Draws, Drop, Failout, Fixed, Sampler, Shuffle, nodes_of
from layerwise.results.pedigree import RETRAINED, refined_at

Variant = Literal["plain", "position", "predict", "wiring", "growth"]
Ranks = Literal["together", "apart"]
Skipping = Literal["together", "apart", "preserved"]

DROP = 0.2
"""The share of layers dropped that LayerDrop's authors recommend, and LayerShuffle's compare with."""


MOST = 1e9
"""Beyond this a number of steps, epochs or examples is a slip of the keyboard, and nothing could be counted by it."""


def check_positive(name: str, value: float) -> None:
    """Raise `TrainError` unless a setting is a number above 0 that a training can be made of."""
    if not 0 < value <= MOST:
        raise TrainError(f"{name} is {value}; write a number above 0, and up to {MOST:g}")


@dataclass(frozen=True, slots=True)
class Settings:
    """How a model is optimised. The defaults are the LayerShuffle paper's (section 4).

    `batch` counts the examples of one optimiser step, in `accumulation` equal pieces that run one after another, on
    all processes together. `warmup` is the share of the steps over which the rate rises. `checks` is how often a
    training is validated and saved. `scratch` multiplies the epochs of trainings that start from random weights.
    `precision` is the arithmetic of the forward pass; weights stay float32. `drop` is the share of layers (or nodes)
    that the methods which leave some out leave out, `reach` how far a shuffled layer may move (anywhere if `None`).
    """

    epochs: float = 20.0
    batch: int = 128
    accumulation: int = 1
    learning_rate: float = 1e-4
    schedule: Literal["linear", "cosine", "constant"] = "linear"
    warmup: float = 0.0
    betas: tuple[float, float] = (0.9, 0.999)
    epsilon: float = 1e-6
    weight_decay: float = 0.0
    gradient_norm: float = 1.0
    augmentation: str = "none"
    precision: Literal["float32", "bfloat16", "float16"] = "float32"
    checks: int = 20
    scratch: float = 3.0
    gradient_checkpointing: bool = False
    drop: float = DROP
    reach: int | None = None

    def __post_init__(self) -> None:
        for name in ("epochs", "batch", "accumulation", "learning_rate", "checks", "scratch"):
            check_positive(name, getattr(self, name))
        if not 0 <= self.warmup <= 1:
            raise TrainError(f"warmup is {self.warmup}; write the share of the steps over which the rate rises, 0 to 1")
        if self.batch % self.accumulation:
            raise TrainError(
                f"a batch of {self.batch} does not fall into {self.accumulation} equal pieces; "
                "write an accumulation that divides it"
            )


SUITED: Mapping[str, Settings] = {
    "demo-vit": Settings(
        epochs=20, batch=64, learning_rate=1e-3, schedule="cosine", warmup=0.02, augmentation="crop", checks=8
    ),
    "demo": Settings(epochs=6, batch=16, learning_rate=1e-3, schedule="cosine", warmup=0.05, checks=6),
}
"""Settings that suit the size of the embedded models: minutes, and enough for every order to be learned."""


@dataclass(frozen=True, slots=True)
class PositionOptions:
    """The layer-position encoding of LayerShuffle-position.

    `features` is the width of the learned embedding; `table` says whether each layer learns its own, as in the paper,
    or all share one, as in its published code.
    """

    features: int = 32
    table: Literal["per-layer", "shared"] = "per-layer"
    dropout: float = 0.0


@dataclass(frozen=True, slots=True)
class PredictionOptions:
    """The position prediction of LayerShuffle-predict.

    `total` says whether the layers' cross-entropies are summed, as in the paper, or averaged, as in its published
    code; `reads` whether a layer is judged by its first token (the class token of a ViT) or by the mean of all.
    """

    total: Literal["sum", "mean"] = "sum"
    reads: Literal["first", "mean"] = "first"


@dataclass(frozen=True, slots=True)
class WiringOptions:
    """The layer weights of a learned wiring (see `layerwise.train.wiring`).

    `kind` is how raw scalars become weights, `initialisation` where they begin: at 1 for the previous layer and 0 else
    ("biased", for "free" weights the identity), or at 0. `rate` multiplies the learning rate for them alone: they are
    few, each a sum over all tokens, and those of ELC-BERT learn at 1e-2. They never decay.

    Raises `TrainError` for free weights that begin at 0: such a model computes nothing.
    """

    kind: Literal["softmax", "free"] = "softmax"
    initialisation: Literal["biased", "zero"] = "biased"
    rate: float = 10.0

    def __post_init__(self) -> None:
        if self.kind == "free" and self.initialisation == "zero":
            raise TrainError(
                "free layer weights of 0 pass nothing on; begin with the initialisation biased, which is the plain "
                "model, or take the kind softmax"
            )


@dataclass(frozen=True, slots=True)
class Growth:
    """A schedule of phases over so many `steps` of a model whose layers have this `cost`.

    Raises `PlanError` for a schedule of another depth than the cost, and for a phase that would have no step.
    """

    schedule: GrowthSchedule
    steps: int
    cost: ModelCost

    def __post_init__(self) -> None:
        self.schedule.check(len(self.cost.layers))
        self.schedule.bounds(self.steps)

    def to_json(self) -> dict[str, Any]:
        """In plain values."""
        return {"schedule": self.schedule.to_json(), "steps": self.steps, "cost": asdict(self.cost)}


@dataclass(frozen=True, slots=True)
class Recipe:
    """One way to train one model.

    `sampler` draws the plan of every training pass, `validation` that of every validation batch; the checkpoint with
    the least validation loss is kept. With `ranks="apart"` every process of a distributed training draws for itself.
    With a `growth` its schedule says which layers run, in order, and for how many steps, and the last weights are kept:
    what a schedule does is known at its end.
    """

    arm: str
    settings: Settings
    sampler: Sampler = field(default_factory=Fixed)
    validation: Sampler = field(default_factory=Fixed)
    variant: Variant = "plain"
    position: PositionOptions = field(default_factory=PositionOptions)
    prediction: PredictionOptions = field(default_factory=PredictionOptions)
    wiring: WiringOptions = field(default_factory=WiringOptions)
    from_scratch: bool = False
    ranks: Ranks = "together"
    growth: Growth | None = None

    def __post_init__(self) -> None:
        if (self.growth is None) == (self.variant == "growth"):
            raise TrainError("the variant growth and a growth schedule come together; write grown(settings, growth)")
        if self.growth is not None and (self.sampler, self.validation) != (Fixed(), Fixed()):
            raise TrainError(
                f"a growth schedule says which layers run, and the sampler {self.sampler} would too; leave one of them "
                "out"
            )

    def to_json(self) -> dict[str, Any]:
        """The recipe in plain values, as JSON gives them back; the samplers by what they print."""
        content = asdict(replace(self, sampler=Fixed(), validation=Fixed()))
        # Trainings that were begun before there were wirings and schedules go on.
        if self.variant != "wiring":
            del content["wiring"]
        del content["growth"]
        if self.growth is not None:
            content["growth"] = self.growth.to_json()
        written = json.dumps({**content, "sampler": str(self.sampler), "validation": str(self.validation)})
        found: dict[str, Any] = json.loads(written)
        return found

    @property
    def leaves_out(self) -> bool:
        """Whether a pass may run without some of the parameters, so that DDP must look for the unused ones."""
        return self.growth is not None or _leaves_out(self.sampler)


def _leaves_out(sampler: Sampler) -> bool:
    match sampler:
        case Shuffle():
            return False
        case Fixed():
            return sampler.plan is not None
        case Drop() | Failout():
            return not sampler.preserve or _leaves_out(sampler.of)
    return True


def baseline(settings: Settings, depth: int) -> Recipe:
    """In order, for one epoch."""
    return Recipe("baseline", replace(settings, epochs=min(1.0, settings.epochs), checks=1))


def sequential(settings: Settings, depth: int) -> Recipe:
    """In order, for all epochs: equal in data and in steps to every other method."""
    return Recipe("sequential", settings)


def layershuffle(settings: Settings, depth: int) -> Recipe:
    """A random permutation of all layers for every batch, in training and in validation."""
    return Recipe("layershuffle", settings, Shuffle(settings.reach), Shuffle(settings.reach))


def layershuffle_position(settings: Settings, depth: int) -> Recipe:
    """LayerShuffle whose layers are told their current position."""
    return replace(layershuffle(settings, depth), arm="layershuffle-position", variant="position")


def layershuffle_predict(settings: Settings, depth: int) -> Recipe:
    """LayerShuffle whose layers predict their current position from their own output."""
    return replace(layershuffle(settings, depth), arm="layershuffle-predict", variant="predict")


def layerdrop(settings: Settings, depth: int) -> Recipe:
    """Every layer left out with probability `drop`; validated with all layers, in order."""
    return Recipe("layerdrop", settings, Drop(settings.drop))


def layerdrop_scratch(settings: Settings, depth: int) -> Recipe:
    """LayerDrop from random weights, for `scratch` times as many epochs."""
    longer = replace(settings, epochs=settings.epochs * settings.scratch)
    return Recipe("layerdrop-scratch", longer, Drop(settings.drop), from_scratch=True)


def layershuffle_layerdrop(settings: Settings, depth: int) -> Recipe:
    """A random order, and every layer left out of it with probability `drop`."""
    shuffle = Shuffle(settings.reach)
    return Recipe("layershuffle-layerdrop", settings, Drop(settings.drop, of=shuffle), shuffle)


def failout(settings: Settings, depth: int) -> Recipe:
    """The layers on four nodes (fewer in a shallow model), each of which fails with probability `drop`."""
    return Recipe("failout", settings, Failout(nodes_of(depth, min(4, depth)), settings.drop))


def wiring_softmax(settings: Settings, depth: int) -> Recipe:
    """Every layer reads a softmax mean of all states before it; in order, for all epochs."""
    return Recipe("wiring-softmax", settings, variant="wiring", wiring=WiringOptions("softmax"))


def wiring_identity(settings: Settings, depth: int) -> Recipe:
    """Every layer, and the head, reads a free sum of all states before it that begins as the plain model."""
    return Recipe("wiring-identity", settings, variant="wiring", wiring=WiringOptions("free"))


def retrained(settings: Settings, layers: tuple[int, ...]) -> Recipe:
    """A model refined with `layers` alone: what a given depth can reach when it is known beforehand."""
    plan = Fixed(Plan.of(layers))
    return Recipe(f"{RETRAINED}-{len(layers)}", settings, plan, plan)


def grown(settings: Settings, growth: Growth, arm: str | None = None) -> Recipe:
    """In order, in the phases of a schedule; called by the schedule's name if not by another."""
    return Recipe(arm or growth.schedule.name, settings, variant="growth", growth=growth)


@dataclass(frozen=True, slots=True)
class Options:
    """What all methods of one run are trained with; each reads what concerns it.

    `skipping` says how a layer is left out where several processes train: the same one on all of them (`together`),
    each its own (`apart`), or run with its update silenced (`preserved`).
    """

    settings: Settings = field(default_factory=Settings)
    position: PositionOptions = field(default_factory=PositionOptions)
    prediction: PredictionOptions = field(default_factory=PredictionOptions)
    skipping: Skipping = "together"

    def recipes(self, methods: Iterable[str], depth: int) -> tuple[Recipe, ...]:
        """The recipe of every method for a model of so many layers; raises what `recipe` raises."""
        return tuple(
            recipe(
                method, self.settings, depth, position=self.position, prediction=self.prediction, skipping=self.skipping
            )
            for method in methods
        )


METHODS: Mapping[str, Callable[[Settings, int], Recipe]] = {
    "baseline": baseline,
    "sequential": sequential,
    "layershuffle": layershuffle,
    "layershuffle-position": layershuffle_position,
    "layershuffle-predict": layershuffle_predict,
    "layerdrop": layerdrop,
    "layerdrop-scratch": layerdrop_scratch,
    "layershuffle-layerdrop": layershuffle_layerdrop,
    "failout": failout,
    "wiring-softmax": wiring_softmax,
    "wiring-identity": wiring_identity,
}
"""Every method that the command line offers, by name."""

COMPARED = tuple(name for name in METHODS if name != "failout" and not name.startswith("wiring"))
"""The methods that LayerShuffle is compared with. Failout asks which layers lie together, and needs an answer; learned
wirings change what layers read, and not what they bear."""


def recipe(
    method: str,
    settings: Settings,
    depth: int,
    *,
    position: PositionOptions | None = None,
    prediction: PredictionOptions | None = None,
    skipping: Skipping = "together",
) -> Recipe:
    """The recipe of a method by its name, or of `retrained-6`: refined with six layers, evenly spread, alone.

    `skipping` says how a layer is left out where several processes train: the same one on all of them (`together`),
    each its own (`apart`), or run with its update silenced (`preserved`). Raises `TrainError` with the near matches
    for an unknown method, `PlanError` for one that a model of this depth cannot be trained by.

    >>> recipe("layershuffle", Settings(), depth=12).settings.learning_rate
    0.0001
    """
    reduced = refined_at(method)
    if reduced is None and method not in METHODS:
        raise TrainError(f"there is no training method {method[:40]!r}; {near_matches(method, METHODS)}, {RETRAINED}-K")
    if reduced is not None:
        found = retrained(settings, kept(depth, reduced, "even", random.Random(0)))
    else:
        found = METHODS[method](settings, depth)
    sampler = found.sampler
    if skipping == "preserved" and isinstance(sampler, Drop | Failout):
        sampler = replace(sampler, preserve=True)
    found = replace(
        found,
        sampler=sampler,
        position=position or found.position,
        prediction=prediction or found.prediction,
        ranks="apart" if skipping == "apart" else "together",
    )
    Draws(found.sampler, depth, 0).at(0)  # what cannot be drawn is refused now, and not at the first step
    return found
