"""`layerwise speculate`: what a model gains by drafting with some of its own layers."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from layerwise.errors import OptionError
from layerwise.experiments.experiment import Action, Alternatives
from layerwise.experiments.option import option
from layerwise.experiments.options.model import ModelOptions
from layerwise.experiments.reporter import Reporter
from layerwise.plan import Plan


@dataclass(frozen=True, kw_only=True)
class SpeculativeDecoding(ModelOptions, Action):
    """Draft with some of a model's layers, verify with all of them, and measure what that gains.

    Prints the speed-up that the draft's agreement with the whole model leads to expect, then what was counted and timed
    on prompts that chose nothing, beside plain generation and transformers' own assistant. The exit code is 1 if a text
    differs from that of plain generation by more than a tie.
    """

    VERB: ClassVar = "speculate"
    EXAMPLES: ClassVar = (
        'demo --draft "0-7 9-11"',
        "org/name --search --text texts/",
    )
    ALTERNATIVES: ClassVar = (Alternatives(("draft", "search"), "say which layers draft"),)

    draft: str | None = option(None, "Plan that drafts.", metavar="PLAN")
    search: bool = option(False, "Search the plan that promises the most tokens per second.")
    tokens: int = option(4, "Tokens of a draft at most.", metavar="N", least=1, most=32)
    text: Path | None = option(None, "Text file, a folder of them, or hf:DATASET; demo has its own.", metavar="PATH")
    prompts: int = option(8, "Prompts to generate from.", metavar="N", least=1)
    context: int = option(64, "Tokens of each prompt, and of the cache that is timed.", metavar="N", least=2)
    new_tokens: int = option(64, "Tokens to generate after each prompt.", metavar="N", least=2)
    agreement_tokens: int = option(4096, "Tokens on which agreement is measured.", metavar="N", least=64)
    seed: int = option(0, "Seed of the division of the text.", metavar="N")

    def check(self) -> None:
        """Raise `PlanError` for a draft that cannot be read, and `OptionError` without a draft or a search."""
        if self.draft is not None:
            Plan.parse(self.draft)
        elif not self.search:
            raise OptionError('say which layers draft: --draft PLAN, such as --draft "0-7 9-11", or --search')

    def act(self, reporter: Reporter) -> int:
        """Choose the draft, generate with it and without, and report; returns 1 if a text differs."""
        from layerwise.experiments.speculation.run import speculate

        return speculate(self, reporter)
