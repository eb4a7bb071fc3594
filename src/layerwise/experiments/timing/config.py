"""`layerwise time`: how long a pass takes under each of several plans.

Of a frontier: the ways of saving time, and how they are timed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from layerwise.errors import OptionError
from layerwise.experiments.experiment import Experiment
from layerwise.experiments.option import option
from layerwise.experiments.options.common import ModelOptions, TextOptions, TimingOptions
from layerwise.experiments.options.plans import given_plan


@dataclass(frozen=True, kw_only=True)
class Timing(ModelOptions, TimingOptions, Experiment):
    """Time a model under several plans.

    A pass over a prompt is timed, and one over a token behind it, in milliseconds. The plans take turns, and each is
    compared with the first of them, or with the model as trained where one plan is given, within each round. Rounds are
    stored as they end: the same command resumes an interrupted run, and with more rounds it adds them.
    """

    VERB: ClassVar = "time"
    RUNS: ClassVar = "timing.run:timing"
    EXAMPLES: ClassVar = (
        'demo --plan "0-11" --plan "0-3 6-11"',
        'demo --plan "0-3 (4|5|6|7) 8-11" --fused',
    )

    plans: tuple[str, ...] = option((), "A plan; repeat for more.", metavar="PLAN", flag="--plan", repeated=True)
    fused: bool = option(False, "Time every plan fused, too: projections of one tensor and members of a group as one.")
    rounds: int = option(20, metavar="N", least=6)

    def check(self) -> None:
        """Raise `PlanError` for a plan that cannot be read, and `OptionError` without one."""
        if not self.plans:
            raise OptionError('a plan is needed: layerwise time MODEL --plan "0-11" --plan "0-3 6-11"')
        for plan in self.plans:
            given_plan(plan)


@dataclass(frozen=True, kw_only=True)
class LatencyFrontier(ModelOptions, TextOptions, TimingOptions, Experiment):
    """Measure what a model loses for the milliseconds that it saves, and whether parallel layers are ever the best way.

    Plans that skip layers, run them side by side or loop them, and models that were pruned and healed are timed
    in turns. One part of the text chooses the plans, another says what they lose. If interrupted, run the same command
    again to resume.
    """

    VERB: ClassVar = "time frontier"
    RUNS: ClassVar = "frontier.run:frontier"
    EXAMPLES: ClassVar = (
        "demo",
        "org/name --text texts/ --healed healed/model",
        "./my-model --text texts/ --sizes 3 --context 512",
    )

    sizes: int = option(6, "Sizes of each kind of plan at most.", metavar="N", least=1, most=64)
    rounds: int = option(20, metavar="N", least=12)
    healed: tuple[str, ...] = option(
        (),
        "A model that was pruned and healed, or a run of heal; repeat for more.",
        metavar="PATH",
        repeated=True,
        is_location=True,
    )
    heal_steps: int | None = option(
        None,
        "Heal plans that skip layers, of three sizes, with N steps each on the part that chooses.",
        metavar="N",
        least=1,
        rare=True,
    )
