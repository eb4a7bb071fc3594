"""The configuration of a sweep: which plans are measured on which model and text."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from layerwise.experiments.experiment import Experiment, Reads
from layerwise.experiments.option import option
from layerwise.experiments.options.cluster import ClusterOptions
from layerwise.experiments.options.model import MemoryOptions, ModelOptions
from layerwise.experiments.options.plans import PlanOptions, families_option
from layerwise.experiments.options.text import TextOptions

NEW_TOKENS = 40
"""Tokens that continue a prompt, unless `--new-tokens` says otherwise."""

DEFAULT_FAMILIES = ("painters", "leave_one_out", "swap_adjacent")


@dataclass(frozen=True, kw_only=True)
class Sweep(PlanOptions, MemoryOptions, ModelOptions, TextOptions, ClusterOptions, Experiment):
    """Measure many plans on one model and text, with intervals, and write a report.

    If interrupted, run the same command again to resume.
    """

    VERB: ClassVar = "sweep"
    RUNS: ClassVar = "sweep.run:sweep"
    EXAMPLES: ClassVar = (
        "demo",
        "HuggingFaceTB/SmolLM2-135M --text book.txt --families painters",
        './my-model --text texts/ --plan "0-13 18-29" --plan "0-29 0-29"',
        "./my-model --text texts/ --head-share 0.25",
        "./my-model --text texts/ --tasks hellaswag,winogrande,gsm8k",
        "demo --families looped,gain_sweep --loops 1-12",
        'demo --families "" --window 4-8 --prompt "reverse k d a z ="',
    )
    READS: ClassVar = (
        *PlanOptions.READ_BY_PLANS,
        ClusterOptions.READ_BY_CLUSTER,
        Reads(("new_tokens",), lambda config: bool(config.prompt), "--prompt reads it, and there is none"),
        Reads(
            ("task_folder", "task_limit", "num_fewshot"),
            lambda config: bool(config.tasks),
            "the benchmarks of --tasks read it, and none was named",
        ),
    )

    PRESETS: ClassVar = {
        "paper": {
            "families": (*DEFAULT_FAMILIES, "looped", "gain_sweep", "repeat_blocks"), "loops": "1-28", "times": "2,3",
            "tasks": ("arc_challenge", "hellaswag", "gsm8k", "winogrande", "lambada_openai"),
        }
    }  # fmt: skip

    families: tuple[str, ...] = families_option(DEFAULT_FAMILIES)
    prompt: tuple[str, ...] = option(
        (), "Text to continue under the plans; repeat for more.", metavar="TEXT", repeated=True
    )
    new_tokens: int = option(NEW_TOKENS, "Tokens that continue a prompt.", metavar="N", least=1)
    tasks: tuple[str, ...] = option((), "Benchmarks of lm-eval; needs layerwise[eval].", metavar="NAMES")
    task_folder: Path | None = option(None, "Folder of lm-eval task files.", metavar="PATH")
    task_limit: int | None = option(None, "Examples of each benchmark.", metavar="N", least=1)
    num_fewshot: int | None = option(
        None, "Examples before each question; by default as each benchmark says.", metavar="N", least=0
    )
    similarity: bool = option(True, "Compare the hidden states of the layers.")
    head_share: float = option(
        1.0,
        "Share of the scored tokens that the head reads; less is faster, with wider intervals.",
        metavar="SHARE",
        least=0.01,
        most=1,
    )

    def check(self) -> None:
        """Raise `PlanError` for plans that are none, and `OptionError` for numbers that cannot be read."""
        self.check_plans()
