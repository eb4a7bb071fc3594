"""The configuration of a sweep: which plans are measured on which model and text."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from layerwise.runner.experiment import AMOUNT_OF_TEXT, Experiment
from layerwise.runner.option import option
from layerwise.runner.options.common import ClusterOptions, DurationOptions, MemoryOptions, ModelOptions
from layerwise.runner.options.plans import PlanOptions, families_option

NEW_TOKENS = 40
"""Tokens that continue a prompt, unless `--new-tokens` says otherwise."""

DEFAULT_FAMILIES = ("painters", "leave_one_out", "swap_adjacent")

FEWER_FAMILIES = (("leave_one_out", "swap_adjacent"), ("leave_one_out",))
"""The families that are measured in place of the default ones, where there is no time for these."""


@dataclass(frozen=True, kw_only=True)
class Sweep(PlanOptions, MemoryOptions, ModelOptions, DurationOptions, ClusterOptions, Experiment):
    """Measure many plans on one model and text, with intervals.

    If interrupted, run the same command again to resume.
    """

    VERB: ClassVar = "sweep"
    RUNS: ClassVar = "sweep.steps:sweep"
    ALTERNATIVES: ClassVar = (AMOUNT_OF_TEXT,)
    EXAMPLES: ClassVar = (
        "demo",
        "HuggingFaceTB/SmolLM2-135M --text book.txt --families painters",
        './my-model --text texts/ --plan "0-13 18-29" --plan "0-29 0-29"',
        "./my-model --text texts/ --minutes 5",
        "./my-model --text texts/ --tasks hellaswag,winogrande,gsm8k",
        "demo --families looped,gain_sweep --loops 1-12",
        'demo --families "" --window 4-8 --prompt "reverse k d a z ="',
    )

    families: tuple[str, ...] = families_option(DEFAULT_FAMILIES)
    prompt: tuple[str, ...] = option(
        (), "Text to continue under the plans; repeat for more.", metavar="TEXT", repeated=True, rare=True
    )
    new_tokens: int = option(NEW_TOKENS, "Tokens to generate.", metavar="N", least=1, rare=True, needs="prompt")
    tasks: tuple[str, ...] = option((), metavar="NAMES")
    task_folder: Path | None = option(None, metavar="PATH", rare=True, needs="tasks")
    task_limit: int | None = option(None, metavar="N", least=1, rare=True, needs="tasks")
    num_fewshot: int | None = option(
        None,
        "Examples before each question; by default as each benchmark says.",
        metavar="N",
        least=0,
        needs="tasks",
        setting=True,
    )
    similarity: bool = option(True, "Compare the hidden states of the layers.", rare=True)

    def check(self) -> None:
        self.check_plans()
