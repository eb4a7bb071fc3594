"""Training methods by name, with their recipes and options.

LayerShuffle (Freiberger et al. 2024) draws a random permutation of the layers for every batch (section 3.2). Its
variants also give layers their position (section 3.3), or let layers predict it (section 3.4). LayerDrop (Fan et al.
2019) randomly skips layers, and failout (Yousefpour et al. 2020) skips all layers of a node. In the `wiring` methods
every layer reads a learned mix of all previous states. All are compared with `sequential`, ordinary training.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, ClassVar, Literal, TypeVar

from layerwise.errors import TrainError, near_matches
from layerwise.plan.samplers import Drop, Failout, SeededSampler, Shuffle, layer_subset, node_layout
from layerwise.results.training_record import RETRAINED, parse_refined_depth
from layerwise.train.recipe import EXTENSIONS, Recipe, Settings, TrainingExtension, retrained

DropSync = Literal["shared", "per-rank", "masked"]
DROP_RATE = 0.2
"""Drop rate that the authors of LayerDrop recommend; the LayerShuffle paper uses it, too."""

Chosen = TypeVar("Chosen", bound=TrainingExtension)


@dataclass(frozen=True, slots=True)
class Options:
    """Options common to all methods of a run.

    Args:
        settings: Optimizer settings.
        drop_rate: Probability of skipping a layer (or a node).
        max_shift: Maximum number of positions that a shuffled layer moves (None: no limit).
        drop_sync: How several processes draw plans: all draw the same (`shared`), each draws its own (`per-rank`), or
            all run every layer and set the updates of skipped layers to zero (`masked`).
        extensions: Extensions whose options differ from the defaults.
    """

    settings: Settings = field(default_factory=Settings)
    drop_rate: float = DROP_RATE
    max_shift: int | None = None
    drop_sync: DropSync = "shared"
    extensions: tuple[TrainingExtension, ...] = ()

    def extension(self, kind: type[Chosen]) -> Chosen:
        return next((each for each in self.extensions if isinstance(each, kind)), None) or kind()

    def to_json(self) -> dict[str, Any]:
        return {
            **asdict(self),
            "extensions": {each.NAME: each.to_json() for each in self.extensions},
        }


@dataclass(frozen=True, slots=True)
class Method:
    """A training method.

    Attributes:
        recipe: Function that creates the recipe, given the options and the depth of the model.
        reads: Names of the options that the method uses.
        is_compared: Whether the default comparison includes the method.
    """

    recipe: Callable[[Options, int], Recipe]
    reads: tuple[str, ...] = ()
    is_compared: bool = True


@dataclass(frozen=True, slots=True)
class PositionOptions(TrainingExtension):
    """Options of the position encoding of LayerShuffle-position.

    Args:
        features: Width of the learned position embedding.
        table: One embedding table per layer, as in the paper, or a shared one, as in the authors' code.
        dropout: Dropout rate. The paper does not state it.
    """

    NAME: ClassVar[str] = "position"
    MODULE: ClassVar[str | None] = "layer_positions"
    ADDED: ClassVar[str | None] = "a position encoding"
    ATTACHED_BY: ClassVar[str | None] = "position:attach_encoding"

    features: int = 32
    table: Literal["per-layer", "shared"] = "per-layer"
    dropout: float = 0.0


@dataclass(frozen=True, slots=True)
class PredictionOptions(TrainingExtension):
    """Options of the position prediction of LayerShuffle-predict.

    Args:
        total: Sum the cross-entropies over layers, as in the paper, or average them, as in the authors' code.
        reads: Predict from the first token (the class token of a ViT), or from the mean of all tokens.
    """

    NAME: ClassVar[str] = "predict"
    MODULE: ClassVar[str | None] = "layer_predictions"
    ATTACHED_BY: ClassVar[str | None] = "position:attach_prediction"

    total: Literal["sum", "mean"] = "sum"
    reads: Literal["first", "mean"] = "first"


@dataclass(frozen=True, slots=True)
class LayerMixingOptions(TrainingExtension):
    """Options of learned layer weights (`layerwise.train.layer_mixing`), which are trained without weight decay.

    Args:
        kind: Compute the weights with a softmax, or use the learned scalars directly (`free`).
        initialization: `biased` sets the scalar of the previous layer to 1 and all others to 0; `zero` sets all to 0.
        rate: Learning rate of the layer weights, relative to that of the model.

    Raises:
        TrainError: If free weights start at 0.
    """

    NAME: ClassVar[str] = "wiring"
    MODULE: ClassVar[str | None] = "layer_wiring"
    ADDED: ClassVar[str | None] = "learned layer weights"
    ATTACHED_BY: ClassVar[str | None] = "layer_mixing:attach"

    kind: Literal["softmax", "free"] = "softmax"
    initialization: Literal["biased", "zero"] = "biased"
    rate: float = 10.0

    def __post_init__(self) -> None:
        if self.kind == "free" and self.initialization == "zero":
            raise TrainError(
                "free layer weights must not start at 0, because all hidden states would be 0. Pass "
                "initialization='biased' or kind='softmax'."
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
    extension = options.extension(PositionOptions)
    return replace(_layershuffle(options, depth), variant="layershuffle-position", extension=extension)


def _layershuffle_predict(options: Options, depth: int) -> Recipe:
    extension = options.extension(PredictionOptions)
    return replace(_layershuffle(options, depth), variant="layershuffle-predict", extension=extension)


def _layerdrop(options: Options, depth: int) -> Recipe:
    return Recipe("layerdrop", options.settings, Drop(options.drop_rate))


def _layerdrop_scratch(options: Options, depth: int) -> Recipe:
    # The authors of LayerDrop report that fine-tuning alone is not enough.
    settings = options.settings
    longer = replace(settings, epochs=settings.epochs * settings.from_scratch_factor)
    return Recipe("layerdrop-scratch", longer, Drop(options.drop_rate), from_scratch=True)


def _layershuffle_layerdrop(options: Options, depth: int) -> Recipe:
    shuffle = Shuffle(options.max_shift)
    return Recipe("layershuffle-layerdrop", options.settings, Drop(options.drop_rate, of=shuffle), shuffle)


def _failout(options: Options, depth: int) -> Recipe:
    return Recipe("failout", options.settings, Failout(node_layout(depth, min(4, depth)), options.drop_rate))


def _wiring_softmax(options: Options, depth: int) -> Recipe:
    return Recipe("wiring-softmax", options.settings, extension=LayerMixingOptions("softmax"))


def _wiring_identity(options: Options, depth: int) -> Recipe:
    return Recipe("wiring-identity", options.settings, extension=LayerMixingOptions("free"))


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
    # Failout depends on the node of each layer, and layer weights do not train for other orders.
    "failout": Method(_failout, ("drop_rate", "drop_sync"), is_compared=False),
    "wiring-softmax": Method(_wiring_softmax, is_compared=False),
    "wiring-identity": Method(_wiring_identity, is_compared=False),
}
COMPARED = tuple(name for name, method in METHODS.items() if method.is_compared)
READ_BY: Mapping[str, tuple[str, ...]] = {
    option: tuple(name for name, method in METHODS.items() if option in method.reads)
    for option in dict.fromkeys(option for method in METHODS.values() for option in method.reads)
}
"""Names of the methods that use each option."""


def recipe(name: str, options: Options, depth: int) -> Recipe:
    """Return the recipe of a method. The method `retrained-6` trains a model of six evenly spaced layers.

    Raises:
        TrainError: If the method is unknown.
        PlanError: If the method cannot be used with this number of layers.

    Example:
    >>> recipe("layershuffle", Options(), depth=12).settings.learning_rate
    0.0001
    """
    reduced = parse_refined_depth(name)
    if reduced is not None:
        made = retrained(options.settings, layer_subset(depth, reduced, "even"))
    elif name in METHODS:
        made = METHODS[name].recipe(options, depth)
    else:
        raise TrainError(f"unknown training method {name[:40]!r}; {near_matches(name, METHODS)}, {RETRAINED}-K")
    sampler = made.sampler
    if options.drop_sync == "masked" and isinstance(sampler, Drop | Failout):
        sampler = replace(sampler, preserve=True)
    made = replace(made, sampler=sampler, ranks="per-rank" if options.drop_sync == "per-rank" else "shared")
    SeededSampler(made.sampler, depth, 0).at(0)  # raises for an invalid sampler now, not at the first step
    return made


def recipes(names: Iterable[str], options: Options, depth: int) -> tuple[Recipe, ...]:
    return tuple(recipe(name, options, depth) for name in names)


def added_by(extension: object) -> str | None:
    """Describe the module that the named extension adds, if layers cannot run without it; otherwise return None.

    >>> added_by("plain") is None
    True
    """
    kind = EXTENSIONS.get(str(extension))
    return None if kind is None else kind.ADDED
