"""The arms of a healing: healings under the plan, the controls beside them, and windows of middle layers."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import get_args

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
"""The losses in the names of healings, with their teacher and their distance of hidden states."""
DEMO_EPOCHS = {"demo": 3.0, "demo-vit": 5.0}
RATES: Mapping[Method, tuple[float, ...]] = {
    "lora": (1e-3, 3e-3, 1e-2),
    "full": (1e-4, 3e-4, 1e-3),
    "tail": (3e-4, 1e-3, 3e-3),
}
"""The rates that are swept without `--learning-rates`; LoRA's are 3 to 10 times those of the weights themselves."""


@dataclass(frozen=True, slots=True)
class HealingArm:
    """A name, how it learns, and whose learning rate it takes: its own, where it is swept, or another's."""

    name: str
    options: HealingOptions
    rate_of: str

    @property
    def is_swept(self) -> bool:
        return self.rate_of == self.name

    def first_rates(self, rates: tuple[float, ...]) -> tuple[float, ...]:
        return rates or RATES[self.options.method]

    def plan(self, plan: Plan, depth: int, seed: int) -> Plan:
        if self.name == vocab.WHOLE:
            return Plan.identity(depth)
        if self.name == vocab.RANDOM:
            return random_plan(plan, depth, seed)
        return (
            middle_skipped(depth, int(self.name.removeprefix(vocab.SKIP))) if self.name.startswith(vocab.SKIP) else plan
        )


def arms_of(
    main: HealingOptions, compare: Sequence[str], controls: Sequence[str], windows: int
) -> tuple[HealingArm, ...]:
    """Return the healing, those that are compared with it, the controls, and one for each number of skipped layers."""
    own = main_name(main)
    others = [name for name in dict.fromkeys(compare) if name != own]
    arms = [HealingArm(own, main, own), *(HealingArm(name, parse_arm(name, main.rank), name) for name in others)]
    if vocab.WHOLE in controls:
        # The whole model has nothing to learn from itself: it learns the labels, whatever the healing learns.
        arms.append(HealingArm(vocab.WHOLE, replace(main, teacher="none", hidden="none"), vocab.WHOLE))
    if vocab.RANDOM in controls:
        arms.append(HealingArm(vocab.RANDOM, main, own))
    arms += [HealingArm(f"{vocab.SKIP}{count}", main, own) for count in range(1, windows + 1)]
    return tuple(arms)


def main_name(options: HealingOptions) -> str:
    loss = next(name for name, chosen in LOSSES.items() if chosen == (options.teacher, options.hidden))
    return f"{options.method}-{loss}"


def parse_arm(name: str, rank: int) -> HealingOptions:
    """Return the options of a healing by its name, without a plan; raises `TrainError` for an unknown name.

    >>> parse_arm("tail-labels", 16).method, parse_arm("lora-mse", 8).hidden
    ('tail', 'mse')
    """
    method, _, loss = name.partition("-")
    chosen = next((each for each in get_args(Method) if each == method), None)
    if chosen is None or loss not in LOSSES:
        known = [f"{each}-{of}" for each in get_args(Method) for of in LOSSES]
        raise TrainError(f"there is no healing {name[:40]!r}; {near_matches(name, known)}")
    teacher, hidden = LOSSES[loss]
    return HealingOptions(method=chosen, teacher=teacher, hidden=hidden, rank=rank)


def random_plan(plan: Plan, depth: int, seed: int) -> Plan:
    """As many layers as `plan` visits, in order, drawn from `seed`; another plan than this one where there is one.

    >>> random_plan(Plan.parse("0-1 4-5"), 6, 0)
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


def middle_skipped(depth: int, count: int) -> Plan:
    """Return the plan without the `count` layers of the middle window, which is the sweep's where the sweep has it.

    >>> middle_skipped(12, 3)
    Plan('0-4 8-11')
    """
    return edits.skip(Plan.identity(depth), *range(*middle_window(depth, count)))
