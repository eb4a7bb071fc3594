"""Tiny models for tests of healing."""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from layerwise.data.splits import Example, Splits
from layerwise.plan import Plan
from layerwise.plan.samplers import Fixed
from layerwise.stack import Stack, load
from layerwise.train.heal.options import HealingOptions
from layerwise.train.heal.trainer import HealingTrainer
from train.tiny_models import plan_trainer, tiny_digits, tiny_llama, tiny_mixtral, tiny_text, tiny_vit

PLAN = Plan.parse("0 2-3")
DEPTH = 4
KINDS: dict[str, tuple[Callable[[int], PreTrainedModel], Splits]] = {
    "llama": (tiny_llama, tiny_text(longest=9)),
    "mixtral": (tiny_mixtral, tiny_text(longest=9)),
    "vit": (tiny_vit, tiny_digits()),
}


def opened(kind: str) -> Stack:
    return load(KINDS[kind][0](DEPTH))


def splits_for(kind: str) -> Splits:
    return KINDS[kind][1]


def batch_of(kind: str, rows: int = 4) -> Example:
    splits = splits_for(kind)
    return splits.collate([splits.train[number] for number in range(rows)])


def trainer_of(stack: Stack, kind: str, folder: Path, options: HealingOptions, **more: Any) -> HealingTrainer:
    own = {"options": options}
    trainer: HealingTrainer = plan_trainer(
        stack, splits_for(kind), folder, Fixed(PLAN), Fixed(PLAN), HealingTrainer, own, **more
    )
    return trainer


def moved(trainer: HealingTrainer, seed: int = 1) -> None:
    chance = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in trainer.learning.weights().values():
            weight += 0.1 * torch.randn(weight.shape, generator=chance)


def copied(stack: Stack) -> Stack:
    return copy.deepcopy(stack)


def logits_of(stack: Stack, plan: Plan, batch: Example) -> Tensor:
    inputs = {name: value for name, value in batch.items() if name != "labels"}
    return stack.logits(plan, **inputs)
