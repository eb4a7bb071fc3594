"""Options of healing: the trained weights and the loss. This module does not import torch."""

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
"""Number of last layers that the method `tail` trains with the head ("Reassessing Layer Pruning", 2411.15558)."""


@dataclass(frozen=True, slots=True)
class HealingOptions(TrainingExtension):
    """Options of healing.

    Args:
        plan: Text of the plan.
        method: Weights to train. `lora` trains adapters on every linear layer and expert of the plan's layers, except
            routers; `full` trains everything except skipped layers; `tail` trains the last three layers of the plan
            and everything after them.
        teacher: `self` minimizes KL(p || q) of the original model's predictions p and the predictions q under the plan,
            averaged over scored positions; `none` trains on the labels.
        hidden: Distance between the hidden states of teacher and student after each layer, which is added to the loss.
        hidden_weight: Weight of the distance.
        rank: Rank of the adapters.

    Raises:
        TrainError: If `hidden` is set without a teacher, or if the rank or the weight is not positive.
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
