"""The configuration of routing: the model, its task sets, what plans may cost on the mean, and what a router reads."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal, get_args

from layerwise.errors import OptionError
from layerwise.experiments.experiment import Experiment
from layerwise.experiments.option import option
from layerwise.experiments.options.common import ModelOptions
from layerwise.experiments.options.plans import given_plan
from layerwise.search.budget import Budget
from layerwise.search.moves import Move, check_moves

Objective = Literal["accuracy", "nats"]
OBJECTIVES: tuple[Objective, ...] = get_args(Objective)


@dataclass(frozen=True, kw_only=True)
class Routing(ModelOptions, Experiment):
    """Choose a plan for each prompt, and compare that with one plan for all at the same mean layers.

    A small router is fitted to a sweep of candidate plans over questions. If interrupted, run the same command again to
    resume. The router is in the run folder, router.safetensors.
    """

    VERB: ClassVar = "search route"
    RUNS: ClassVar = "routing.run:routing"
    EXAMPLES: ClassVar = (
        "demo",
        "demo --tasks skills,lambada.jsonl --objective nats",
        "org/name --tasks arc_easy,piqa --budget layers=0.8x",
    )

    tasks: tuple[str, ...] = option((), metavar="NAMES")
    task_folder: Path | None = option(None, metavar="PATH", rare=True)
    task_limit: int | None = option(None, metavar="N", least=60, rare=True)
    budget: str = option("layers=0.9x", metavar="BUDGET")
    objective: Objective = option("accuracy", "What is predicted and judged.")
    prefix: int = option(
        0, "Layers that every candidate keeps, after which the router reads; 0: embeddings.", metavar="N", least=0,
        setting=True,
    )  # fmt: skip
    moves: tuple[str, ...] = option(("drop", "repeat"), metavar="NAMES", rare=True)
    width: int = option(2, metavar="N", least=1, most=8, rare=True, needs="moves")
    plan: tuple[str, ...] = option((), metavar="PLAN", repeated=True, rare=True)
    margin: float = option(0.02, "Scores that differ by less are alike.", metavar="X", setting=True)
    seeds: int = option(3, metavar="N", least=3, most=100)
    max_length: int | None = option(None, metavar="N", least=2, rare=True)
    batch_tokens: int | None = option(None, metavar="N", least=1, rare=True)

    def check(self) -> None:
        """Raise `OptionError` for a budget of another unit, moves that are none, and no task set."""
        from layerwise.search.routing.verdict import RoutingCriterion

        if Budget.parse(self.budget).unit != "layers":
            raise OptionError(f"--budget {self.budget}: a router's plans are priced in layers; write layers=0.9x")
        if self.moves and not set(check_moves(self.moves)) <= {"drop", "repeat", "reorder"}:
            raise OptionError("--moves takes drop, repeat and reorder; give other candidates with --plan")
        for text in self.plan:
            given_plan(text)
        RoutingCriterion(self.margin)
        if not self.tasks and self.model != "demo":
            raise OptionError("task sets are needed: --tasks NAMES, such as arc_easy,piqa (only demo has its own)")
        if len(set(self.task_names)) < len(self.task_names):
            raise OptionError("--tasks names a set twice; name each once")

    @property
    def task_names(self) -> tuple[str, ...]:
        """The task sets."""
        return self.tasks or ("skills",)

    @property
    def checked_moves(self) -> tuple[Move, ...]:
        """The moves, those that there are."""
        return check_moves(self.moves) if self.moves else ()
