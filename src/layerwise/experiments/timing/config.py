"""`layerwise time`: how long a pass takes under each of several plans.

Of a frontier: the ways of saving time, and how they are timed. Of speculation: what a model gains by drafting with some
of its own layers.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from layerwise.errors import DataError, OptionError
from layerwise.experiments.experiment import Alternatives, Experiment
from layerwise.experiments.option import option
from layerwise.experiments.options.common import ModelOptions, TextOptions, TimingOptions
from layerwise.experiments.options.plans import given_plan

if TYPE_CHECKING:
    from layerwise.data.text.corpus import Corpus


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

    Plans that skip layers, run them side by side or loop them, drafts, and models that were pruned and healed are timed
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
    draft_tokens: int = option(4, metavar="N", least=1, most=32, rare=True)
    new_tokens: int = option(32, metavar="N", least=2, rare=True)
    healed: tuple[str, ...] = option(
        (), "A model that was pruned and healed, or a run of heal; repeat for more.", metavar="PATH", repeated=True,
        is_location=True,
    )  # fmt: skip
    heal_steps: int | None = option(
        None, "Heal plans that skip layers, of three sizes, with N steps each on the part that chooses.", metavar="N",
        least=1, rare=True,
    )  # fmt: skip


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
        from layerwise.data.demo.corpus import demo_corpus
        from layerwise.data.text.corpus import read_corpus

        if self.text is not None:
            return read_corpus(self.text)
        if self.model == "demo":
            return demo_corpus()
        raise DataError("a text to draw prompts from is needed: --text FILE_OR_FOLDER (only demo has its own)")
