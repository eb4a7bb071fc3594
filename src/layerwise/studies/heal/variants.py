"""The variants that `layerwise heal` trains: methods under the plan, controls, and windows of skipped middle layers."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, get_args

from layerwise.errors import TrainError, near_matches
from layerwise.plan import Plan, edits
from layerwise.plan.painters import middle_window
from layerwise.results import vocabulary as vocab
from layerwise.train.heal.options import HealingOptions, HiddenLoss, Method, Teacher
from layerwise.train.recipe import Settings

SETTINGS = Settings(epochs=1, batch_size=16, schedule="cosine", warmup=0.05, betas=(0.9, 0.99), epsilon=1e-8, evals=4)
LOSSES: Mapping[str, tuple[Teacher, HiddenLoss]] = {
    "labels": ("none", "none"),
    "teacher": ("self", "none"),
    "cosine": ("self", "cosine"),
    "mse": ("self", "mse"),
}
"""Maps the second word of a variant's name, such as `lora-mse`, to a teacher and a hidden loss."""
DEMO_EPOCHS = {"demo": 3.0, "demo-vit": 5.0}
RATES: Mapping[Method, tuple[float, ...]] = {
    "lora": (1e-3, 3e-3, 1e-2),
    "full": (1e-4, 3e-4, 1e-3),
    "tail": (3e-4, 1e-3, 3e-3),
}
"""Default learning rates by method."""


@dataclass(frozen=True, slots=True)
class HealingVariant:
    """A variant that is trained, at the best learning rate of the variant `rate_of` (which may be itself).

    If `skipped` is above 0, the variant skips that many middle layers instead of following the plan.
    """

    name: str
    options: HealingOptions
    rate_of: str
    skipped: int = 0

    def list_rates(self, rates: tuple[float, ...]) -> tuple[float, ...]:
        return rates or RATES[self.options.method]


@dataclass(frozen=True, slots=True)
class Healing:
    """All variants for a model with `depth` layers, each trained with `seeds` seeds."""

    plan: Plan
    depth: int
    variants: tuple[HealingVariant, ...]
    seeds: int

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(variant.name for variant in self.variants)

    def choose_plan(self, variant: HealingVariant, seed: int) -> Plan:
        if variant.name == vocab.RANDOM:
            return draw_random_plan(self.plan, self.depth, seed)
        if variant.skipped:
            return skip_middle(self.depth, variant.skipped)
        return Plan.identity(self.depth) if variant.name == vocab.IDENTITY_CONTROL else self.plan

    def name_untrained(self, variant: HealingVariant, seed: int) -> str:
        """Return the name under which the model before healing is evaluated with the plan of a variant."""
        if variant.name == vocab.RANDOM:
            return f"{variant.name} before/{seed}"
        if variant.skipped:
            return f"{variant.name} before"
        return vocab.ORIGINAL if variant.name == vocab.IDENTITY_CONTROL else vocab.PRUNED

    def list_untrained(self) -> dict[str, Plan]:
        plans = {vocab.ORIGINAL: Plan.identity(self.depth), vocab.PRUNED: self.plan}
        return plans | {
            self.name_untrained(variant, seed): self.choose_plan(variant, seed)
            for variant in self.variants
            for seed in range(self.seeds)
        }

    def list_base_columns(self) -> dict[str, dict[str, Any]]:
        """Map the name of each model before healing to the columns that identify its rows."""
        names = (vocab.ORIGINAL,) if self.plan == Plan.identity(self.depth) else (vocab.ORIGINAL, vocab.PRUNED)
        columns: dict[str, dict[str, Any]] = {name: {"variant": name} for name in names}
        for variant in self.variants:
            shared = {"variant": variant.name, "condition": vocab.BEFORE}
            if variant.name == vocab.RANDOM:
                columns |= {self.name_untrained(variant, seed): {**shared, "seed": seed} for seed in range(self.seeds)}
            elif variant.skipped:
                columns[self.name_untrained(variant, 0)] = {**shared, "affected": variant.skipped}
        return columns


def build_variants(
    main: HealingOptions, compare: Sequence[str], controls: Sequence[str], windows: int
) -> tuple[HealingVariant, ...]:
    """Return the main variant, the variants of `compare`, the controls, and one for each window of skipped layers."""
    loss = next(name for name, pair in LOSSES.items() if pair == (main.teacher, main.hidden))
    first = f"{main.method}-{loss}"
    others = [name for name in dict.fromkeys(compare) if name != first]
    variants = [HealingVariant(first, main, first)]
    variants += [HealingVariant(name, parse_variant(name, main.rank), name) for name in others]
    if vocab.IDENTITY_CONTROL in controls:
        # The original model has nothing to learn from its own predictions, so it always learns the labels.
        variants.append(
            HealingVariant(vocab.IDENTITY_CONTROL, replace(main, teacher="none", hidden="none"), vocab.IDENTITY_CONTROL)
        )
    if vocab.RANDOM in controls:
        variants.append(HealingVariant(vocab.RANDOM, main, first))
    variants += [HealingVariant(f"{vocab.SKIP}{count}", main, first, count) for count in range(1, windows + 1)]
    return tuple(variants)


def parse_variant(name: str, rank: int) -> HealingOptions:
    """Return the options, other than the plan, that the name of a variant means.

    Raises:
        TrainError: If the name is unknown.

    Example:
    >>> parse_variant("tail-labels", 16).method, parse_variant("lora-mse", 8).hidden
    ('tail', 'mse')
    """
    method, _, loss = name.partition("-")
    known = next((each for each in get_args(Method) if each == method), None)
    if known is None or loss not in LOSSES:
        names = [f"{each}-{name}" for each in get_args(Method) for name in LOSSES]
        raise TrainError(f"unknown healing variant {name[:40]!r}; {near_matches(name, names)}")
    teacher, hidden = LOSSES[loss]
    return HealingOptions(method=known, teacher=teacher, hidden=hidden, rank=rank)


def draw_random_plan(plan: Plan, depth: int, seed: int) -> Plan:
    """Draw a random plan with as many layers as `plan`, in the original order, that differs from `plan`.

    >>> draw_random_plan(Plan.parse("0-1 4-5"), 6, 0)
    Plan('0 3-5')
    """
    count = min(depth, len(plan.steps()))
    chance = random.Random(f"{seed}/{vocab.RANDOM}")
    drawn = plan
    for _ in range(10):
        drawn = Plan.of(sorted(chance.sample(range(depth), count)))
        if drawn != plan:
            break
    return drawn


def skip_middle(depth: int, count: int) -> Plan:
    """Return the plan that skips the `count` middle layers.

    >>> skip_middle(12, 3)
    Plan('0-4 8-11')
    """
    return edits.skip(Plan.identity(depth), *range(*middle_window(depth, count)))
