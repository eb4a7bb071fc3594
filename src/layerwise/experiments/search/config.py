"""The configuration of a search: the model and its text, what a plan may cost, and how it is looked for."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from layerwise.errors import OptionError
from layerwise.experiments.experiment import Experiment, Reads
from layerwise.experiments.option import option
from layerwise.experiments.options.model import ModelOptions
from layerwise.experiments.options.text import TextOptions
from layerwise.search.budget import Budget
from layerwise.search.moves import CHEAPER, MOVES, check_moves

Method = Literal["greedy", "evolve", "optuna", "one-shot"]


@dataclass(frozen=True, kw_only=True)
class Search(ModelOptions, TextOptions, Experiment):
    """Search the plan of a given price that loses least, and confirm it on text that chose nothing.

    If interrupted, run the same command again to resume. `layerwise heal --plan RUN` and `layerwise save --plan RUN`
    take the plan that the run chose.
    """

    VERB: ClassVar = "search"
    RUNS: ClassVar = "search.run:search"
    EXAMPLES: ClassVar = (
        "demo --budget layers=9",
        "org/name --text texts/ --budget layers=0.75x",
        "./my-model --text texts/ --budget ms=0.75x --phase decode",
    )
    READS: ClassVar = (
        Reads(
            ("phase", "latency_batch", "context"),
            lambda config: Budget.parse(config.budget).unit == "ms" or config.latency,
            "milliseconds are measured for a budget of ms, or with --latency",
        ),
        Reads(("width",), lambda config: config.method == "greedy", "greedy reads it"),
    )

    budget: str = option(help='What a plan may cost: "layers=24", "ms=0.75x" or "bytes=0.8x".', metavar="BUDGET")
    moves: tuple[str, ...] = option(("drop",), f"What a plan is changed by, from: {', '.join(MOVES)}.", metavar="NAMES")
    method: Method = option("greedy", "How it is looked for.")
    width: int = option(3, "Plans that go on from every step.", metavar="N", least=1, most=64)
    second_text: Path | None = option(None, "Another corpus to report on.", metavar="PATH")
    latency: bool = option(False, "Measure milliseconds, whatever the budget is of.")
    phase: Literal["prefill", "decode"] = option("prefill", "What is timed.")
    latency_batch: int = option(1, "Texts at once when timed.", metavar="N", least=1)
    context: int = option(256, "Tokens of each text when timed.", metavar="N", least=1)

    def check(self) -> None:
        """Raise `OptionError` for a budget, moves or a method that cannot be."""
        Budget.parse(self.budget)
        moves = check_moves(self.moves)
        if self.method == "evolve" and not set(moves) <= {"drop", "halves"}:
            raise OptionError("--method evolve exchanges layers and halves; name --moves drop,halves, or use greedy")
        if self.method == "one-shot" and moves != ("drop",):
            raise OptionError("--method one-shot leaves out whole layers; leave --moves out, or use greedy")
        if not set(moves) & set(CHEAPER):
            raise OptionError(
                f"none of {', '.join(moves)} makes a plan cheaper; name one of {', '.join(CHEAPER)} as well"
            )
        if self.method == "optuna":
            from layerwise.search.nsga import require_optuna

            require_optuna()

    @property
    def times(self) -> bool:
        """Whether milliseconds are measured."""
        return self.latency or Budget.parse(self.budget).unit == "ms"
