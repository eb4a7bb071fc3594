"""`layerwise time`: how long a pass takes under each of several plans."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from layerwise.errors import OptionError
from layerwise.runner.experiment import Experiment
from layerwise.runner.option import option
from layerwise.runner.options.common import ModelOptions
from layerwise.runner.options.plans import given_plan


@dataclass(frozen=True, kw_only=True)
class Timing(ModelOptions, Experiment):
    """Time a model under several plans.

    A pass over a prompt is timed, and one over a token behind it, in milliseconds. The plans take turns, and each is
    compared with the first of them, or with the model as trained where one plan is given, within each round. Rounds are
    stored as they end: the same command resumes an interrupted run, and with more rounds it adds them.
    """

    VERB: ClassVar = "time"
    RUNS: ClassVar = "time.steps:timing"
    EXAMPLES: ClassVar = ('demo --plan "0-11" --plan "0-3 6-11"',)

    plans: tuple[str, ...] = option((), "A plan; repeat for more.", metavar="PLAN", flag="--plan", repeated=True)
    rounds: int = option(20, metavar="N", least=6)
    batch: int = option(1, "Texts at once when timed.", metavar="N", least=1, rare=True)
    context: int = option(128, metavar="N", least=1, rare=True)
    graphs: bool = option(True, "On CUDA, replay every pass as a CUDA graph.", setting=True)

    def check(self) -> None:
        if not self.plans:
            raise OptionError('a plan is needed: layerwise time MODEL --plan "0-11" --plan "0-3 6-11"')
        for plan in self.plans:
            given_plan(plan)
