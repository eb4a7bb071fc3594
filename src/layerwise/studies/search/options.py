"""The configuration of a search: the model and its text, what a plan may cost, and how it is looked for."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal

from layerwise.errors import OptionError
from layerwise.plan.checks import source_name
from layerwise.runner.experiment import AMOUNT_OF_TEXT, Experiment, Reads
from layerwise.runner.option import option
from layerwise.runner.options.common import DurationOptions, ModelOptions
from layerwise.runner.reporter import Reporter, waiting
from layerwise.search.budget import Budget
from layerwise.search.moves import BESIDE_BITS, BITS, CHEAPER, Move, check_moves

if TYPE_CHECKING:
    from layerwise.stack import Stack

Method = Literal["auto", "greedy", "evolve", "one-shot"]

WIDTH = 3


@dataclass(frozen=True, kw_only=True)
class Search(ModelOptions, DurationOptions, Experiment):
    """Search the plan of a given price that loses least.

    It is confirmed on text that chose nothing. If interrupted, run the same command again to resume. `layerwise heal
    --plan RUN` and `layerwise save --plan RUN` take the plan that the run chose.
    """

    VERB: ClassVar = "search"
    RUNS: ClassVar = "search.steps:search"
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
    moves: tuple[str, ...] = option(
        ("drop",), "Edits of a plan: drop, halves, repeat, damp, parallel, reorder, bits.", metavar="NAMES"
    )
    source: tuple[str, ...] = option(
        (),
        "Another model, built alike, whose layers may stand in; repeat for more.",
        metavar="MODEL",
        repeated=True,
        rare=True,
        needs="method=auto|greedy|evolve",
    )
    method: Method = option("auto", "Search algorithm (auto: greedy, or one-shot if greedy takes too long).")
    width: int = option(
        WIDTH,
        "Number of plans kept at every step.",
        metavar="N",
        least=1,
        most=64,
        rare=True,
        needs="method=auto|greedy",
    )
    second_text: Path | None = option(None, "Another corpus to report on.", metavar="PATH", rare=True)
    latency: bool = option(False, "Measure milliseconds, whatever the budget is of.", rare=True)
    phase: Literal["prefill", "decode"] = option("prefill", "What is timed.", rare=True)
    batch: int = option(1, "Texts at once when timed.", metavar="N", least=1, rare=True)
    context: int = option(256, metavar="N", least=1, rare=True)

    def check(self) -> None:
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

    def _check_bits(self, moves: tuple[Move, ...]) -> None:
        others = [move for move in moves if move not in (BITS, *BESIDE_BITS)]
        if Budget.parse(self.budget).unit != "bytes":
            raise OptionError(f"--budget {self.budget}: types of layers save bytes; write bytes=0.7x, or no move bits")
        if others:
            raise OptionError(f"--moves bits goes with {', '.join(BESIDE_BITS)}; leave out {', '.join(others)}")
        if self.source:
            raise OptionError("--moves bits is searched in one model; leave out --source")

    def questions(self) -> list[Search]:
        if self.method != "auto":
            return [self]
        greedy = replace(self, method="greedy")
        if self.width != WIDTH:
            return [greedy]
        narrow = replace(greedy, width=1)
        removes = self.moves == ("drop",) and not self.source and not Budget.parse(self.budget).holds_whole
        return [greedy, narrow, replace(self, method="one-shot")] if removes else [greedy, narrow]

    @property
    def times(self) -> bool:
        return self.latency or Budget.parse(self.budget).unit == "ms"

    def with_sources(self, stack: Stack, reporter: Reporter) -> Stack:
        """Return `stack` with the layers of the other models as b, c, ...; raises `ModelError` for unlike models."""
        if not self.source:
            return stack
        from layerwise.runner.opening import open_model
        from layerwise.stack import Stack

        named = {source_name(0): stack}
        for number, location in enumerate(self.source, start=1):
            with waiting(reporter, f"loading {location}"):
                opened = open_model(self, model=location, dtype=str(stack.dtype), device=str(stack.device))
                named[source_name(number)] = opened
        able = copy.copy(stack)
        able.sources = Stack.with_sources(named).sources
        return able
