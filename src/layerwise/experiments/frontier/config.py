"""The configuration of a frontier: the model and its text, the ways of saving time, and how they are timed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from layerwise.experiments.experiment import Experiment
from layerwise.experiments.option import option
from layerwise.experiments.options.common import ModelOptions, TextOptions, TimingOptions


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
