"""The configuration of a pretraining: which variants, of which size, with how many seeds, on which text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from layerwise.errors import TrainError
from layerwise.experiments.experiment import Alternatives, Experiment, Reads
from layerwise.experiments.option import option
from layerwise.experiments.options.common import ClusterOptions, CorpusOptions, DeviceOptions, PublishingOptions
from layerwise.experiments.options.training import TrainingOptions, seeds_option, steps_option

BACKBONE = "ltg"
"""The variant without layer weights."""

VARIANTS = (BACKBONE, "elc")
"""What is pretrained unless `--variants` says otherwise: the backbone, and the paper's layer weights."""


@dataclass(frozen=True, kw_only=True)
class PretrainingExperiment(CorpusOptions, TrainingOptions, DeviceOptions, ClusterOptions, Experiment):
    """What every experiment has that pretrains masked language models of several variants and seeds on one text."""

    size: Literal["tiny", "small", "base"] = option("tiny")
    tokenizer: str | None = option(None, metavar="PATH", is_location=True, rare=True)
    seeds: int = seeds_option(1)
    steps: int | None = steps_option()

    def check(self) -> None:
        """Raise `TrainError` for `--set` of another form than NAME=VALUE."""
        self.trainer_arguments(self.device)


@dataclass(frozen=True, kw_only=True)
class ElcPretraining(PublishingOptions, PretrainingExperiment):
    """Pretrain ELC-BERT and its backbone on a text: a tokenizer, the models, what they know, their layer weights.

    If interrupted, run the same command again to resume. Without a text the models read the standard library's prose.
    """

    VERB: ClassVar = "train elc"
    RUNS: ClassVar = "pretraining.run:pretraining"
    EXAMPLES: ClassVar = (
        "",
        "--text babylm_10M --validation babylm_dev --test babylm_test",
        "--text FOLDER --size small --precision bfloat16 --seeds 3",
    )
    READS: ClassVar = (
        Reads(
            ("initialisation",),
            lambda config: any(name != BACKBONE for name in config.variants),
            "layer weights read it, and ltg has none",
        ),
    )

    ALTERNATIVES: ClassVar = (Alternatives(("epochs", "steps", "seconds"), "say how long to train"),)

    variants: tuple[str, ...] = option(VARIANTS, "Ways to connect the layers.", metavar="NAMES")
    initialisation: str | None = option(
        None, "How layer weights begin: biased, zero, identity, or the scalar of the previous layer.", metavar="NAME",
        rare=True,
    )  # fmt: skip
    vocabulary: int | None = option(
        None, "Tokens of the tokenizer that is learned; not with --tokenizer.", metavar="N", least=1, most=2**20,
        setting=True,
    )  # fmt: skip
    epochs: float | None = option(None, metavar="X")
    seconds: float | None = option(
        None, "Seconds of each training, in place of --steps; steps are timed first.", metavar="X", setting=True
    )
    padding_free: bool = option(
        False, "Compute nothing but attention for padding, where segments are short.", setting=True
    )

    def check(self) -> None:
        """Raise `TrainError` for no variant, and for a vocabulary of a tokenizer that is given."""
        super().check()
        self.check_repository()
        if not self.variants:
            raise TrainError("--variants names nothing; write the ways to connect the layers, as in --variants ltg,elc")
        if self.vocabulary is not None and self.tokenizer is not None:
            raise TrainError(
                f"--vocabulary is the size of a tokenizer that is learned, and {self.tokenizer} is one already; leave "
                "one of them out"
            )
