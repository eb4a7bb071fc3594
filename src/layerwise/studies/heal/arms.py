"""The arms of a healing: healings under the plan, the controls beside them, and windows of middle layers."""

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
    """A name, how it learns, and whose learning rate it takes: its own, where it is swept, or another's.

    A window skips as many middle layers as `skipped` says, and no others.
    """

    name: str
    options: HealingOptions
    rate_of: str
    skipped: int = 0

    def first_rates(self, rates: tuple[float, ...]) -> tuple[float, ...]:
        return rates or RATES[self.options.method]


@dataclass(frozen=True, slots=True)
class Healing:
    """The arms of a healing: trainings of a model of `depth` layers under a plan, with `seeds` seeds each."""

    plan: Plan
    depth: int
    arms: tuple[HealingArm, ...]
    seeds: int

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(arm.name for arm in self.arms)

    def plan_of(self, arm: HealingArm, seed: int) -> Plan:
        if arm.name == vocab.RANDOM:
            return random_plan(self.plan, self.depth, seed)
        if arm.skipped:
            return middle_skipped(self.depth, arm.skipped)
        return Plan.identity(self.depth) if arm.name == vocab.WHOLE else self.plan

    def before(self, arm: HealingArm, seed: int) -> str:
        """Return the name of the base under the plan of an arm."""
        if arm.name == vocab.RANDOM:
            return f"{arm.name} before/{seed}"
        return f"{arm.name} before" if arm.skipped else vocab.UNTOUCHED if arm.name == vocab.WHOLE else vocab.PRUNED

    def list_untrained(self) -> dict[str, Plan]:
        plans = {vocab.UNTOUCHED: Plan.identity(self.depth), vocab.PRUNED: self.plan}
        return plans | {
            self.before(arm, seed): self.plan_of(arm, seed) for arm in self.arms for seed in range(self.seeds)
        }

    def base_columns(self) -> dict[str, dict[str, Any]]:
        """Return the columns of the rows of every model that is not trained, by its name."""
        is_whole = self.plan == Plan.identity(self.depth)
        columns: dict[str, dict[str, Any]] = {
            name: {"arm": name} for name in ((vocab.UNTOUCHED,) if is_whole else (vocab.UNTOUCHED, vocab.PRUNED))
        }
        for arm in self.arms:
            of = {"arm": arm.name, "condition": vocab.BEFORE}
            if arm.name == vocab.RANDOM:
                columns |= {self.before(arm, seed): {**of, "seed": seed} for seed in range(self.seeds)}
            elif arm.skipped:
                columns[self.before(arm, 0)] = {**of, "affected": arm.skipped}
        return columns


def arms_of(
    main: HealingOptions, compare: Sequence[str], controls: Sequence[str], windows: int
) -> tuple[HealingArm, ...]:
    """Return the healing, those that are compared with it, the controls, and one for each number of skipped layers."""
    loss = next(name for name, chosen in LOSSES.items() if chosen == (main.teacher, main.hidden))
    own = f"{main.method}-{loss}"
    others = [name for name in dict.fromkeys(compare) if name != own]
    arms = [HealingArm(own, main, own), *(HealingArm(name, parse_arm(name, main.rank), name) for name in others)]
    if vocab.WHOLE in controls:
        # The whole model has nothing to learn from itself: it learns the labels, whatever the healing learns.
        arms.append(HealingArm(vocab.WHOLE, replace(main, teacher="none", hidden="none"), vocab.WHOLE))
    if vocab.RANDOM in controls:
        arms.append(HealingArm(vocab.RANDOM, main, own))
    arms += [HealingArm(f"{vocab.SKIP}{count}", main, own, count) for count in range(1, windows + 1)]
    return tuple(arms)


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
