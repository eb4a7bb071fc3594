"""The configuration of a healing: which plan, which weights learn, from what, and what stands beside it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from layerwise.errors import PlanError, TrainError, near_matches
from layerwise.plan import Plan
from layerwise.plan.quantised import refuse_quantised_layers
from layerwise.runner.experiment import Alternatives, Experiment, Reads
from layerwise.runner.option import option
from layerwise.runner.options.common import DataOptions, LoadingOptions, PublishingOptions
from layerwise.runner.options.plans import chosen_plan
from layerwise.runner.options.training import OptimizationOptions, seeds_option, steps_option
from layerwise.train.heal.options import RANK, HealingOptions, HiddenLoss, Method, Teacher

CONTROLS = ("whole", "random")
METHODS: tuple[Method, ...] = ("lora", "full", "tail")
LOSSES: dict[str, tuple[Teacher, HiddenLoss]] = {
    "labels": ("none", "none"),
    "teacher": ("self", "none"),
    "cosine": ("self", "cosine"),
    "mse": ("self", "mse"),
}
"""What an arm is called by its loss, with its teacher and its distance of hidden states."""


@dataclass(frozen=True, kw_only=True)
class Healing(LoadingOptions, DataOptions, OptimizationOptions, PublishingOptions, Experiment):
    """Train a model to make up for the layers that a plan leaves out.

    Beside it the whole model is trained on the same tokens, and random plans of the same size are healed as long; the
    regained share is net of the first. Learning rates are swept for both sides. With --tasks all are asked benchmarks:
    lm-eval's, and pairs. RUN/model holds the healed model as a checkpoint, RUN/adapter its adapters. If interrupted,
    run the same command again to resume.
    """

    VERB: ClassVar = "heal"
    RUNS: ClassVar = "heal.steps:healing"
    EXAMPLES: ClassVar = (
        'demo --plan "0-3 6-11" --windows 4 --tasks pairs',
        'org/name --plan "0-19 26-31" --text FOLDER --compare lora-labels',
        "demo --plan 0-11 --teacher none --method full",
    )
    ALTERNATIVES: ClassVar = (Alternatives(("steps", "epochs"), "say how long to train"),)
    READS: ClassVar = (
        Reads(
            ("rank",),
            lambda config: config.trains_adapters,
            "the method lora reads it, and nothing is healed by it",
        ),
    )

    model: str = option(help="Hub id, folder, demo or demo-vit.", metavar="MODEL", positional=True, is_location=True)
    plan: str = option(
        help='Which layers, in which order: "0-3 6-11"; or the run of a search.', metavar="PLAN", empty=True
    )
    method: Method = option(
        "lora",
        "What to train: adapters (lora), all weights of the plan (full), or its last three layers and the head (tail).",
    )
    teacher: Teacher = option("self", "Learn the predictions of the whole model, or the labels.", rare=True)
    hidden: HiddenLoss = option(
        "none", "Learn the hidden states of the whole model too, by this distance.", needs="teacher=self", setting=True
    )
    rank: int = option(RANK, "Rank of the adapters.", metavar="N", least=1, most=4096, setting=True)
    compare: tuple[str, ...] = option(
        (), f"Other healings, METHOD-LOSS; the losses are {', '.join(LOSSES)}: lora-labels.", metavar="NAMES"
    )
    controls: tuple[str, ...] = option(
        CONTROLS,
        "Train the whole model, heal random plans as long: whole, random; none with an empty text.",
        metavar="NAMES",
        empty=True,
        rare=True,
    )
    windows: int | None = option(
        None, "Also heal with 1 to N middle layers skipped.", metavar="N", least=1, most=1_000, rare=True
    )
    tasks: tuple[str, ...] = option((), metavar="NAMES")
    task_folder: Path | None = option(None, metavar="PATH", rare=True, needs="tasks")
    task_limit: int | None = option(None, metavar="N", least=1, rare=True, needs="tasks")
    learning_rates: tuple[float, ...] = option((), metavar="NUMBERS", rare=True, above=0)
    steps: int | None = steps_option()
    epochs: float | None = option(None, above=0)
    seeds: int = seeds_option(3)

    def check(self) -> None:
        refuse_quantised_layers(self.parsed_plan, "heal a model")
        if self.parsed_plan.sources():
            raise PlanError(
                f"{self.plan} takes layers of several models, and one is healed: write them as one with layerwise save"
            )
        for name in self.compare:
            parse_arm(name, self.rank)
        for name in self.controls:
            if name not in CONTROLS:
                raise TrainError(f"there is no control {name[:40]!r}; {near_matches(name, CONTROLS)}")
        self.trainer_arguments(self.device)
        self.check_repository()

    @property
    def parsed_plan(self) -> Plan:
        return chosen_plan(self.plan)

    def fine_tunes(self, depth: int) -> bool:
        return self.parsed_plan == Plan.identity(depth) and self.windows is None

    @property
    def trains_adapters(self) -> bool:
        return any(name.startswith("lora") for name in (self.method, *self.compare))

    @property
    def main(self) -> str:
        loss = next(name for name, chosen in LOSSES.items() if chosen == (self.teacher, self.hidden))
        return f"{self.method}-{loss}"


def parse_arm(name: str, rank: int) -> HealingOptions:
    """Return the options of a healing by its name, without a plan; raises `TrainError` for an unknown name.

    >>> parse_arm("tail-labels", 16).method, parse_arm("lora-mse", 8).hidden
    ('tail', 'mse')
    """
    method, _, loss = name.partition("-")
    chosen = next((each for each in METHODS if each == method), None)
    if chosen is None or loss not in LOSSES:
        known = [f"{each}-{of}" for each in METHODS for of in LOSSES]
        raise TrainError(f"there is no healing {name[:40]!r}; {near_matches(name, known)}")
    teacher, hidden = LOSSES[loss]
    return HealingOptions(method=chosen, teacher=teacher, hidden=hidden, rank=rank)
