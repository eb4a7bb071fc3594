"""Options of a healing: which weights are trained, and on which loss. Needs no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

from layerwise.errors import TrainError
from layerwise.plan import Plan
from layerwise.plan.samplers import Fixed
from layerwise.train.recipe import Recipe, Settings, TrainingExtension

Method = Literal["lora", "full", "tail"]
Teacher = Literal["self", "none"]
HiddenLoss = Literal["none", "cosine", "mse"]

RANK = 16
TAIL_LAYERS = 3
"""Number of trained last layers; the head is trained as well ("Reassessing Layer Pruning", 2411.15558)."""


@dataclass(frozen=True, slots=True)
class HealingOptions(TrainingExtension):
    """Options of a healing under `plan`.

    Args:
        plan: Text of the plan.
        method: Weights to train: `lora`, adapters of `rank` on every linear map and expert of the plan's layers (not on
            routers); `full`, everything except skipped layers; `tail`, the last three layers and everything after.
        teacher: `self` minimizes KL(p || q) between the predictions p of the original model and q under the plan, at
            scored positions; `none` uses the labels.
        hidden: Distance of the states after each layer of the plan to add to the loss (of images, at all positions).
        hidden_weight: Weight of that distance.
        rank: Rank of the adapters.

    Raises:
        TrainError: If `hidden` has no teacher, or if the rank or the weight is not positive.
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
                f"hidden must be none without a teacher, got {self.hidden}. Pass teacher='self', or no hidden loss."
            )
        if self.rank < 1 or not self.hidden_weight > 0:
            raise TrainError(
                f"rank must be at least 1 and hidden_weight above 0, got {self.rank} and {self.hidden_weight:g}."
            )


def healing_recipe(name: str, settings: Settings, plan: Plan, options: HealingOptions) -> Recipe:
    return Recipe(name, settings, Fixed(plan), Fixed(plan), replace(options, plan=str(plan)))
