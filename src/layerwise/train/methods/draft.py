"""Training towards one draft: the whole model learns from the labels, and a plan of its layers from the whole model."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

from layerwise.errors import TrainError
from layerwise.plan import Plan
from layerwise.train.methods.method import Options, register
from layerwise.train.recipe import Recipe
from layerwise.train.variant import Variant


@dataclass(frozen=True, slots=True)
class DraftOptions(Variant):
    """The plan that learns to draft, and what its loss counts beside that of the whole model.

    Every step runs the whole model and then the draft, on the same examples, and steps on the gradient of

        cross-entropy(whole) + weight * KL(whole || draft)

    at the scored positions; the whole model's predictions are the target of the draft and learn nothing from it. This
    is LayerSkip's early-exit loss (Elhoushi et al. 2024, arXiv:2404.16710, section 4.1) with any plan for the exit, and
    with the model's predictions, which decide what is kept of a draft, for the labels (Zhou et al. 2023,
    arXiv:2310.08461). Without a plan the draft is the first layer and the last one.

    Raises `PlanError` for a plan that cannot be read, `TrainError` for a weight that is not above 0.
    """

    NAME: ClassVar[str] = "draft"
    TRAINED_BY: ClassVar[str | None] = "draft:DraftTrainer"
    # A step's second pass uses some of the layers alone, which DDP must be told.
    TRAINING_ARGUMENTS: ClassVar[dict[str, Any]] = {"ddp_find_unused_parameters": True}

    plan: str = ""
    weight: float = 1.0

    def __post_init__(self) -> None:
        if self.plan:
            Plan.parse(self.plan)
        if not self.weight > 0:
            raise TrainError(f"the draft's loss counts {self.weight:g}; write a weight above 0, such as 1")


# A draft is a part of the model; LayerShuffle's comparisons are of orders and of layers lost at random.
@register("draft", ("draft", "draft_weight"), is_compared=False, rank=25)
def draft(options: Options, depth: int) -> Recipe:
    """In order, for all epochs, and `draft` beside it: a plan that learns to predict what the whole model does."""
    chosen = options.variant(DraftOptions)
    plan = Plan.parse(chosen.plan) if chosen.plan else Plan.of(sorted({0, depth - 1}))
    plan.check(depth)
    return Recipe("draft", options.settings, variant=replace(chosen, plan=str(plan)))
