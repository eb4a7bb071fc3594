"""What a healing trains and what it learns from, as the variant of a recipe. This module needs no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

from layerwise.errors import TrainError
from layerwise.plan import Plan
from layerwise.plan.samplers import Fixed
from layerwise.train.recipe import Recipe, Settings, Variant

Method = Literal["lora", "full", "tail"]
Teacher = Literal["self", "none"]
HiddenLoss = Literal["none", "cosine", "mse"]

RANK = 16
TAIL_LAYERS = 3
"""Layers that learn beside the head, the last ones of the plan ("Reassessing Layer Pruning", 2411.15558)."""


@dataclass(frozen=True, slots=True)
class HealingOptions(Variant):
    """How a model is healed under `plan`.

    `method` chooses the weights that learn: `lora`, adapters of `rank` on every linear map and expert of the plan's
    layers (not on routers); `full`, all but skipped layers; `tail`, the plan's last three layers and what follows. With
    `teacher` "self" the loss is KL(p || q) of predictions q under the plan from p, those of the original model, at
    scored positions; "none" uses the labels. `hidden` adds `hidden_weight` times the distance of states after each
    layer of the plan (of an image, at all positions).

    Raises `TrainError` for hidden states without a teacher, and for a rank or weight not above 0.
    """

    NAME: ClassVar[str] = "heal"
    TRAINED_BY: ClassVar[str | None] = "heal.trainer:HealingTrainer"
    TRAINING_ARGUMENTS: ClassVar[Mapping[str, Any]] = {"include_num_input_tokens_seen": "non_padding"}

    plan: str = ""
    method: Method = "lora"
    teacher: Teacher = "self"
    hidden: HiddenLoss = "none"
    hidden_weight: float = 1.0
    rank: int = RANK

    def __post_init__(self) -> None:
        if self.hidden != "none" and self.teacher == "none":
            raise TrainError(
                f"the hidden states of the whole model ({self.hidden}) are learned from it as a teacher, and there is "
                "none: write --teacher self, or leave --hidden out"
            )
        if self.rank < 1 or not self.hidden_weight > 0:
            raise TrainError(
                f"a rank of {self.rank} and a weight of {self.hidden_weight:g} of hidden states were given; write a "
                "rank of 1 or more and a weight above 0"
            )


def healing_recipe(arm: str, settings: Settings, plan: Plan, options: HealingOptions) -> Recipe:
    return Recipe(arm, settings, Fixed(plan), Fixed(plan), replace(options, plan=str(plan)))
