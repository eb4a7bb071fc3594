"""The configuration of a pretraining: which variants, of which size, with how many seeds, on which text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from layerwise.errors import TrainError
from layerwise.runner.experiment import Alternatives, Experiment
from layerwise.runner.option import option
from layerwise.runner.options.common import CorpusOptions, DeviceOptions, PublishingOptions
from layerwise.runner.options.training import TrainingOptions, seeds_option, steps_option

BACKBONE = "ltg"

VARIANTS = (BACKBONE, "elc")
"""What is pretrained unless `--variants` says otherwise: the backbone, and the paper's layer weights."""


@dataclass(frozen=True, kw_only=True)
class ElcPretraining(PublishingOptions, CorpusOptions, TrainingOptions, DeviceOptions, Experiment):
    """Pretrain ELC-BERT and its backbone on a text, and compare them: losses, minimal pairs, layer weights.

    With several seeds, every difference from the backbone has an interval over seeds. If interrupted, run the same
    command again to resume. Without a text the models read the standard library's prose.
    """

    VERB: ClassVar = "train elc"
    RUNS: ClassVar = "train_elc.steps:pretraining"
    EXAMPLES: ClassVar = (
        "",
        "--text babylm_10M --validation babylm_dev --test babylm_test",
        "--text FOLDER --size small --precision bfloat16 --seeds 3",
        "--variants ltg,elc,elc-frozen,elc-bias-2,zero --seeds 3",
    )
    ALTERNATIVES: ClassVar = (Alternatives(("epochs", "steps", "seconds"), "say how long to train"),)

    size: Literal["tiny", "small", "base"] = option("tiny")
    variants: tuple[str, ...] = option(
        VARIANTS,
        "Ways to connect the layers, also with another start or on a share of the text: elc-bias-2, elc-identity, "
        "elc-frozen, elc-share-0.5.",
        metavar="NAMES",
    )
    tokenizer: str | None = option(None, metavar="PATH", is_location=True, rare=True)
    seeds: int = seeds_option(1)
    steps: int | None = steps_option()
    vocabulary: int | None = option(
        None,
        "Tokens of the tokenizer that is learned; not with --tokenizer.",
        metavar="N",
        least=1,
        most=2**20,
        setting=True,
    )
    epochs: float | None = option(None, metavar="X")
    seconds: float | None = option(
        None, "Seconds of each training, in place of --steps; steps are timed first.", metavar="X", setting=True
    )
    padding_free: bool = option(
        False, "Compute nothing but attention for padding, where segments are short.", setting=True
    )

    def check(self) -> None:
        self.trainer_arguments(self.device)
        self.check_repository()
        if not self.variants:
            raise TrainError("--variants names nothing; write the ways to connect the layers, as in --variants ltg,elc")
        if self.vocabulary is not None and self.tokenizer is not None:
            raise TrainError(
                f"--vocabulary is the size of a tokenizer that is learned, and {self.tokenizer} is one already; leave "
                "one of them out"
            )
