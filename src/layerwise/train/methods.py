"""Methods of training by name: the recipe that each makes for a model of some depth, and the options that it reads.

LayerShuffle (Freiberger et al. 2024) draws a uniform permutation of the layers for every batch (section 3.2); every
layer may also be given its current position (section 3.3) or predict it (section 3.4). LayerDrop (Fan et al. 2019)
skips every layer with some probability, failout (Yousefpour et al. 2020) whole nodes of layers. A wiring lets every
layer read a learned mix of all states before it. Training in order is what every other method is compared with.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, ClassVar, Literal, TypeVar

from layerwise.errors import TrainError, near_matches
from layerwise.plan.samplers import Drop, Failout, SeededSampler, Shuffle, layer_subset, node_layout
from layerwise.results.training_record import RETRAINED, parse_refined_depth
from layerwise.train.recipe import VARIANTS, Recipe, Settings, Variant, retrained

DropSync = Literal["shared", "per-rank", "masked"]
DROP_RATE = 0.2
"""The share of layers dropped that LayerDrop's authors recommend, and LayerShuffle's compare with."""

Chosen = TypeVar("Chosen", bound=Variant)


@dataclass(frozen=True, slots=True)
class Options:
    """Options that all methods of one run share; each reads what concerns it.

    `drop_rate` is the share of layers (or nodes) left out, `max_shift` the reach of a shuffled layer (`None`:
    anywhere). `drop_sync` says whether processes leave out the same layers (`shared`), their own (`per-rank`), or mask
    their updates (`masked`). `variants` replace the default options of their kind.
    """

    settings: Settings = field(default_factory=Settings)
    drop_rate: float = DROP_RATE
    max_shift: int | None = None
    drop_sync: DropSync = "shared"
    variants: tuple[Variant, ...] = ()

    def variant(self, kind: type[Chosen]) -> Chosen:
        return next((each for each in self.variants if isinstance(each, kind)), None) or kind()

    def to_json(self) -> dict[str, Any]:
        return {
            **asdict(self),
            "variants": {each.NAME: each.to_json() for each in self.variants},
        }


@dataclass(frozen=True, slots=True)
class Method:
    """A method: the recipe that it makes for a model of some depth, and the options that it `reads`.

    `is_compared` says whether LayerShuffle is compared with it.
    """

    recipe: Callable[[Options, int], Recipe]
    reads: tuple[str, ...] = ()
    is_compared: bool = True


@dataclass(frozen=True, slots=True)
class PositionOptions(Variant):
    """The layer-position encoding of LayerShuffle-position.

    `features` is the width of the learned embedding; `table` says whether each layer learns its own, as in the paper,
    or all share one, as in its published code. The paper has a `dropout` and states no rate.
    """

    NAME: ClassVar[str] = "position"
    MODULE: ClassVar[str | None] = "layer_positions"
    ADDED: ClassVar[str | None] = "a position encoding"
    ATTACHED_BY: ClassVar[str | None] = "position:attach_encoding"

    features: int = 32
    table: Literal["per-layer", "shared"] = "per-layer"
    dropout: float = 0.0


@dataclass(frozen=True, slots=True)
class PredictionOptions(Variant):
    """The position prediction of LayerShuffle-predict.

    `total` sums the layers' cross-entropies, as in the paper, or averages them, as in its code; `reads` is the first
    token (the class token of a ViT) or the mean of all.
    """

    NAME: ClassVar[str] = "predict"
    MODULE: ClassVar[str | None] = "layer_predictions"
    ATTACHED_BY: ClassVar[str | None] = "position:attach_prediction"

    total: Literal["sum", "mean"] = "sum"
    reads: Literal["first", "mean"] = "first"


@dataclass(frozen=True, slots=True)
class LayerMixingOptions(Variant):
    """The layer weights of a learned wiring (see `layerwise.train.layer_mixing`).

    `kind` is how raw scalars become weights, `initialisation` where they begin: at 1 for the previous layer and 0 else
    ("biased", for "free" weights the identity), or at 0. `rate` multiplies the learning rate for them alone: they are
    few, each a sum over all tokens, and those of ELC-BERT learn at 1e-2. They never decay.

    Raises `TrainError` for free weights that begin at 0: such a model computes nothing.
    """

    NAME: ClassVar[str] = "wiring"
    MODULE: ClassVar[str | None] = "layer_wiring"
    ADDED: ClassVar[str | None] = "learned layer weights"
    ATTACHED_BY: ClassVar[str | None] = "layer_mixing:attach"

    kind: Literal["softmax", "free"] = "softmax"
    initialisation: Literal["biased", "zero"] = "biased"
    rate: float = 10.0

    def __post_init__(self) -> None:
        if self.kind == "free" and self.initialisation == "zero":
            raise TrainError(
                "free layer weights of 0 pass nothing on; begin with the initialisation biased, which is the plain "
                "model, or take the kind softmax"
            )


def _baseline(options: Options, depth: int) -> Recipe:
    settings = options.settings
    return Recipe("baseline", replace(settings, epochs=min(1.0, settings.epochs), evals=1))


def _sequential(options: Options, depth: int) -> Recipe:
    return Recipe("sequential", options.settings)


def _layershuffle(options: Options, depth: int) -> Recipe:
    shuffle = Shuffle(options.max_shift)
    return Recipe("layershuffle", options.settings, shuffle, shuffle)


def _layershuffle_position(options: Options, depth: int) -> Recipe:
    variant = options.variant(PositionOptions)
    return replace(_layershuffle(options, depth), arm="layershuffle-position", variant=variant)


def _layershuffle_predict(options: Options, depth: int) -> Recipe:
    variant = options.variant(PredictionOptions)
    return replace(_layershuffle(options, depth), arm="layershuffle-predict", variant=variant)


def _layerdrop(options: Options, depth: int) -> Recipe:
    return Recipe("layerdrop", options.settings, Drop(options.drop_rate))


def _layerdrop_scratch(options: Options, depth: int) -> Recipe:
    """Train with LayerDrop from random weights: its authors say that fine-tuning alone is not enough."""
    settings = options.settings
    longer = replace(settings, epochs=settings.epochs * settings.from_scratch_factor)
    return Recipe("layerdrop-scratch", longer, Drop(options.drop_rate), from_scratch=True)


def _layershuffle_layerdrop(options: Options, depth: int) -> Recipe:
    """Train in a random order with LayerDrop, which the papers do not try."""
    shuffle = Shuffle(options.max_shift)
    return Recipe("layershuffle-layerdrop", options.settings, Drop(options.drop_rate, of=shuffle), shuffle)


def _failout(options: Options, depth: int) -> Recipe:
    return Recipe("failout", options.settings, Failout(node_layout(depth, min(4, depth)), options.drop_rate))


def _wiring_softmax(options: Options, depth: int) -> Recipe:
    """Read a softmax mean of all states before, as in ELC-BERT (Charpentier and Samuel 2023)."""
    return Recipe("wiring-softmax", options.settings, variant=LayerMixingOptions("softmax"))


def _wiring_identity(options: Options, depth: int) -> Recipe:
    """Read a sum with weights of any sign that begins as the plain model, as DenseFormer (Pagliardini et al. 2024)."""
    return Recipe("wiring-identity", options.settings, variant=LayerMixingOptions("free"))


METHODS: Mapping[str, Method] = {
    "baseline": Method(_baseline),
    "sequential": Method(_sequential),
    "layershuffle": Method(_layershuffle, ("max_shift", "drop_sync")),
    "layershuffle-position": Method(
        _layershuffle_position, ("max_shift", "drop_sync", "position_table", "position_dropout")
    ),
    "layershuffle-predict": Method(
        _layershuffle_predict, ("max_shift", "drop_sync", "prediction_loss", "prediction_token")
    ),
    "layerdrop": Method(_layerdrop, ("drop_rate", "drop_sync")),
    "layerdrop-scratch": Method(_layerdrop_scratch, ("drop_rate", "drop_sync")),
    "layershuffle-layerdrop": Method(_layershuffle_layerdrop, ("drop_rate", "max_shift", "drop_sync")),
    # Failout needs to know which layers are on one node, and layer weights change what layers read, and not which
    # orders they work in.
    "failout": Method(_failout, ("drop_rate", "drop_sync"), is_compared=False),
    "wiring-softmax": Method(_wiring_softmax, is_compared=False),
    "wiring-identity": Method(_wiring_identity, is_compared=False),
}
"""Every method that the command line offers, by name, in the order in which they are listed."""

COMPARED = tuple(name for name, method in METHODS.items() if method.is_compared)
"""The methods that LayerShuffle is compared with."""

READ_BY: Mapping[str, tuple[str, ...]] = {
    option: tuple(name for name, method in METHODS.items() if option in method.reads)
    for option in dict.fromkeys(option for method in METHODS.values() for option in method.reads)
}
"""The methods that read an option, by the option's name."""


def recipe(name: str, options: Options, depth: int) -> Recipe:
    """Return the recipe of a method by its name, or of `retrained-6`: refined with six layers, evenly spread, alone.

    Raises `TrainError` with the near matches for an unknown method, `PlanError` for one that a model of this depth
    cannot be trained by.

    >>> recipe("layershuffle", Options(), depth=12).settings.learning_rate
    0.0001
    """
    reduced = parse_refined_depth(name)
    if reduced is not None:
        made = retrained(options.settings, layer_subset(depth, reduced, "even"))
    elif name in METHODS:
        made = METHODS[name].recipe(options, depth)
    else:
        raise TrainError(f"there is no training method {name[:40]!r}; {near_matches(name, METHODS)}, {RETRAINED}-K")
    sampler = made.sampler
    if options.drop_sync == "masked" and isinstance(sampler, Drop | Failout):
        sampler = replace(sampler, preserve=True)
    made = replace(made, sampler=sampler, ranks="per-rank" if options.drop_sync == "per-rank" else "shared")
    SeededSampler(made.sampler, depth, 0).at(0)  # what cannot be drawn is refused now, and not at the first step
    return made


def recipes(names: Iterable[str], options: Options, depth: int) -> tuple[Recipe, ...]:
    return tuple(recipe(name, options, depth) for name in names)


def added_by(variant: object) -> str | None:
    """Return a description of the parts that layers trained with this variant require, or None.

    >>> added_by("plain") is None
    True
    """
    kind = VARIANTS.get(str(variant))
    return None if kind is None else kind.ADDED
