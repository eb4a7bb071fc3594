"""`layerwise time speculation`: what a model gains by drafting with some of its own layers."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from layerwise.errors import DataError, OptionError
from layerwise.experiments.experiment import Alternatives, Experiment
from layerwise.experiments.option import option
from layerwise.experiments.options.common import ModelOptions
from layerwise.experiments.options.plans import given_plan

if TYPE_CHECKING:
    from layerwise.data.text.corpus import Corpus


@dataclass(frozen=True, kw_only=True)
class SpeculativeDecoding(ModelOptions, Experiment):
    """Draft with some of a model's layers, verify with all of them, and measure what that gains.

    The draft's agreement with the whole model says what to expect. Then tokens, layer passes and seconds are counted on
    prompts that chose nothing, beside plain generation and transformers' own assistant. Prompts are stored as they end:
    the same command resumes an interrupted run. A text that differs from that of plain generation by more than a tie is
    an error.
    """

    VERB: ClassVar = "time speculation"
    RUNS: ClassVar = "speculation.run:speculation"
    EXAMPLES: ClassVar = (
        'demo --draft "0-7 9-11"',
        "org/name --search --text texts/",
    )
    ALTERNATIVES: ClassVar = (Alternatives(("draft", "search"), "say which layers draft"),)

    draft: str | None = option(None, "Plan that drafts.", metavar="PLAN")
    search: bool = option(False, "Search the plan that promises the most tokens per second.")
    tokens: int = option(4, "Tokens of a draft at most.", metavar="N", least=1, most=32)
    text: Path | None = option(None, metavar="PATH")
    prompts: int = option(8, "Prompts to generate from.", metavar="N", least=1, rare=True)
    context: int = option(64, metavar="N", least=2)
    new_tokens: int = option(64, metavar="N", least=2)
    agreement_tokens: int = option(4096, "Tokens on which agreement is measured.", metavar="N", least=64, setting=True)

    def check(self) -> None:
        """Raise `PlanError` for a draft that cannot be read, and `OptionError` without a draft or a search."""
        if self.draft is not None:
            given_plan(self.draft)
        elif not self.search:
            raise OptionError('say which layers draft: --draft PLAN, such as --draft "0-7 9-11", or --search')

    def corpus(self) -> Corpus:
        """The text: the one that was named, or the demo's own. Raises `DataError` for a model that has none."""
        from layerwise.data.text.corpus import read_corpus
        from layerwise.data.text.demo_corpus import demo_corpus

        if self.text is not None:
            return read_corpus(self.text)
        if self.model == "demo":
            return demo_corpus()
        raise DataError("a text to draw prompts from is needed: --text FILE_OR_FOLDER (only demo has its own)")
