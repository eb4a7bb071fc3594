"""Learned layer weights: every layer reads a learned mix of all states before it; in order, for all epochs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from layerwise.errors import TrainError
from layerwise.train.methods.method import Options
from layerwise.train.recipe import Recipe
from layerwise.train.variant import Variant


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


def wiring_softmax(options: Options, depth: int) -> Recipe:
    """Every layer reads a softmax mean of all states before it, as in ELC-BERT (Charpentier and Samuel 2023)."""
    return Recipe("wiring-softmax", options.settings, variant=LayerMixingOptions("softmax"))


def wiring_identity(options: Options, depth: int) -> Recipe:
    """Every layer, and the head, reads a sum of all states before it with weights of any sign, which begins as the
    plain model, as in DenseFormer (Pagliardini et al. 2024)."""
    return Recipe("wiring-identity", options.settings, variant=LayerMixingOptions("free"))
