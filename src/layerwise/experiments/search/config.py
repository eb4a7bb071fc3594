"""The configuration of a search: the model and its text, what a plan may cost, and how it is looked for.

Of a routing: its task sets, what plans may cost on the mean, and what a router reads.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal

from layerwise.errors import OptionError
from layerwise.experiments.experiment import AMOUNT_OF_TEXT, Experiment, Reads
from layerwise.experiments.option import option
from layerwise.experiments.options.common import DurationOptions, ModelOptions
from layerwise.experiments.options.plans import given_plan
from layerwise.experiments.reporter import Reporter, waiting
from layerwise.plan.checks import source_name
from layerwise.search.budget import Budget
from layerwise.search.moves import BESIDE_BITS, BITS, CHEAPER, Move, check_moves
from layerwise.search.routing import Objective

if TYPE_CHECKING:
    from layerwise.stack import Stack

Method = Literal["greedy", "evolve", "optuna", "one-shot"]


@dataclass(frozen=True, kw_only=True)
class Search(ModelOptions, DurationOptions, Experiment):
    """Search the plan of a given price that loses least.

    It is confirmed on text that chose nothing. If interrupted, run the same command again to resume. `layerwise heal
    --plan RUN` and `layerwise save --plan RUN` take the plan that the run chose.
    """

    VERB: ClassVar = "search"
    RUNS: ClassVar = "search.run:search"
    ALTERNATIVES: ClassVar = (AMOUNT_OF_TEXT,)
    EXAMPLES: ClassVar = (
        "demo --budget layers=9",
        "./my-model --text texts/ --budget ms=0.75x --phase decode",
        "./first --source ./second --text texts/ --budget layers=1x",
        "model.gguf --text texts/ --budget bytes=0.8x --moves bits,drop",
        "org/name --text texts/ --budget layers=2x --moves repeat,damp",
    )
    READS: ClassVar = (
        Reads(
            ("phase", "batch", "context"),
            lambda config: Budget.parse(config.budget).unit == "ms" or config.latency,
            "milliseconds are measured for a budget of ms, or with --latency",
        ),
    )

    budget: str = option(metavar="BUDGET")
    moves: tuple[str, ...] = option(("drop",), metavar="NAMES")
    source: tuple[str, ...] = option(
        (),
        "Another model, built alike, whose layers may stand in; repeat for more.",
        metavar="MODEL",
        repeated=True,
        rare=True,
        needs="method=greedy|evolve",
    )
    method: Method = option("greedy", "How it is looked for.")
    width: int = option(3, metavar="N", least=1, most=64, rare=True, needs="method=greedy")
    second_text: Path | None = option(None, "Another corpus to report on.", metavar="PATH", rare=True)
    latency: bool = option(False, "Measure milliseconds, whatever the budget is of.", rare=True)
    phase: Literal["prefill", "decode"] = option("prefill", "What is timed.", rare=True)
    batch: int = option(1, "Texts at once when timed.", metavar="N", least=1, rare=True)
    context: int = option(256, metavar="N", least=1, rare=True)

    def check(self) -> None:
        """Raise `OptionError` for a budget, moves or a method that cannot be."""
        Budget.parse(self.budget)
        moves = check_moves(self.moves)
        if self.method == "evolve" and not set(moves) <= {"drop", "halves"}:
            raise OptionError("--method evolve exchanges layers and halves; name --moves drop,halves, or use greedy")
        if self.method == "one-shot" and moves != ("drop",):
            raise OptionError("--method one-shot leaves out whole layers; leave --moves out, or use greedy")
        if BITS in moves:
            self._check_bits(moves)
        elif not set(moves) & set(CHEAPER) and not Budget.parse(self.budget).holds_whole:
            raise OptionError(
                f"none of {', '.join(moves)} makes a plan cheaper; name one of {', '.join((*CHEAPER, BITS))} as well, "
                "or leave room for more than the whole model: layers=2x"
            )
        if self.method == "optuna":
            from layerwise.search.nsga import require_optuna

            require_optuna()

    def _check_bits(self, moves: tuple[Move, ...]) -> None:
        """Raise `OptionError` where types of layers cannot be searched."""
        others = [move for move in moves if move not in (BITS, *BESIDE_BITS)]
        if Budget.parse(self.budget).unit != "bytes":
            raise OptionError(f"--budget {self.budget}: types of layers save bytes; write bytes=0.7x, or no move bits")
        if others:
            raise OptionError(f"--moves bits goes with {', '.join(BESIDE_BITS)}; leave out {', '.join(others)}")
        if self.method != "greedy" or self.source:
            raise OptionError("--moves bits is searched greedily in one model; leave out --method and --source")

    @property
    def times(self) -> bool:
        """Whether milliseconds are measured."""
        return self.latency or Budget.parse(self.budget).unit == "ms"

    def with_sources(self, stack: Stack, reporter: Reporter) -> Stack:
        """`stack` with the layers of the other models within reach, as b, c, ...: the names that `save` gives them.

        Raises `ModelError` for a model that is not built alike.
        """
        if not self.source:
            return stack
        from layerwise.experiments.opening import open_model
        from layerwise.stack import Stack

        named = {source_name(0): stack}
        for number, location in enumerate(self.source, start=1):
            with waiting(reporter, f"loading {location}"):
                named[source_name(number)] = open_model(self, model=location, dtype=self.dtype)
        able = copy.copy(stack)
        able.sources = Stack.with_sources(named).sources
        return able


@dataclass(frozen=True, kw_only=True)
class Routing(ModelOptions, Experiment):
    """Choose a plan for each prompt, and compare that with one plan for all at the same mean layers.

    A small router is fitted to a sweep of candidate plans over questions. If interrupted, run the same command again to
    resume. The router is in the run folder, router.safetensors.
    """

    VERB: ClassVar = "search route"
    RUNS: ClassVar = "search.routing:routing"
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
        0,
        "Layers that every candidate keeps, after which the router reads; 0: embeddings.",
        metavar="N",
        least=0,
        setting=True,
    )
    moves: tuple[str, ...] = option(("drop", "repeat"), metavar="NAMES", rare=True)
    width: int = option(2, metavar="N", least=1, most=8, rare=True, needs="moves")
    plan: tuple[str, ...] = option((), metavar="PLAN", repeated=True, rare=True)
    margin: float = option(0.02, "Scores that differ by less are alike.", metavar="X", above=0, setting=True)
    seeds: int = option(3, metavar="N", least=3, most=100)
    max_length: int | None = option(None, metavar="N", least=2, rare=True)
    batch_tokens: int | None = option(None, metavar="N", least=1, rare=True)

    def check(self) -> None:
        """Raise `OptionError` for a budget of another unit, moves that are none, and no task set."""
        if Budget.parse(self.budget).unit != "layers":
            raise OptionError(f"--budget {self.budget}: a router's plans are priced in layers; write layers=0.9x")
        if self.moves and not set(check_moves(self.moves)) <= {"drop", "repeat", "reorder"}:
            raise OptionError("--moves takes drop, repeat and reorder; give other candidates with --plan")
        for text in self.plan:
            given_plan(text)
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
