"""LayerShuffle (Freiberger et al. 2024): a uniform permutation of the layers for every batch.

layershuffle             section 3.2
layershuffle-position    the same, and every layer is given its current position (section 3.3)
layershuffle-predict     the same, and every layer predicts its current position (section 3.4)
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from layerwise.plan.samplers import Shuffle
from layerwise.train.methods.method import Options
from layerwise.train.recipe import Recipe
from layerwise.train.variant import Variant


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


def layershuffle(options: Options, depth: int) -> Recipe:
    shuffle = Shuffle(options.max_shift)
    return Recipe("layershuffle", options.settings, shuffle, shuffle)


def layershuffle_position(options: Options, depth: int) -> Recipe:
    variant = options.variant(PositionOptions)
    return replace(layershuffle(options, depth), arm="layershuffle-position", variant=variant)


def layershuffle_predict(options: Options, depth: int) -> Recipe:
    variant = options.variant(PredictionOptions)
    return replace(layershuffle(options, depth), arm="layershuffle-predict", variant=variant)
