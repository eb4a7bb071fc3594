"""The configuration of a pretraining: which variants, of which size, with how many seeds, on which text; its study."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, Literal

from layerwise.errors import TrainError
from layerwise.runner.experiment import Alternatives, Experiment, Reads
from layerwise.runner.option import option
from layerwise.runner.options.common import CorpusOptions, DeviceOptions, PublishingOptions
from layerwise.runner.options.training import GlueOptions, TrainingOptions, seeds_option, steps_option

BACKBONE = "ltg"

VARIANTS = (BACKBONE, "elc")
"""What is pretrained unless `--variants` says otherwise: the backbone, and the paper's layer weights."""


@dataclass(frozen=True, kw_only=True)
class PretrainingExperiment(CorpusOptions, TrainingOptions, DeviceOptions, Experiment):
    """What every experiment has that pretrains masked language models of several variants and seeds on one text."""

    size: Literal["tiny", "small", "base"] = option("tiny")
    tokenizer: str | None = option(None, metavar="PATH", is_location=True, rare=True)
    seeds: int = seeds_option(1)
    steps: int | None = steps_option()

    def check(self) -> None:
        self.trainer_arguments(self.device)


@dataclass(frozen=True, kw_only=True)
class ElcPretraining(PublishingOptions, PretrainingExperiment):
    """Pretrain ELC-BERT and its backbone on a text: a tokenizer, the models, what they know, their layer weights.

    If interrupted, run the same command again to resume. Without a text the models read the standard library's prose.
    """

    VERB: ClassVar = "train elc"
    RUNS: ClassVar = "train_elc.steps:pretraining"
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
        None,
        "How layer weights begin: biased, zero, identity, or the scalar of the previous layer.",
        metavar="NAME",
        rare=True,
    )
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
        super().check()
        self.check_repository()
        if not self.variants:
            raise TrainError("--variants names nothing; write the ways to connect the layers, as in --variants ltg,elc")
        if self.vocabulary is not None and self.tokenizer is not None:
            raise TrainError(
                f"--vocabulary is the size of a tokenizer that is learned, and {self.tokenizer} is one already; leave "
                "one of them out"
            )


@dataclass(frozen=True, kw_only=True)
class LayerWeightsStudy(GlueOptions, PretrainingExperiment):
    """Study whether learned layer weights are worth it: with and without them, and how they begin.

    Arms are compared at equal steps and at equal seconds, with weights in pretraining, in fine-tuning and in both, on
    held-out text, on minimal pairs, on GLUE and by what they prefer of mixed signals; and by the steps and seconds to
    one loss in pretraining and to one score in fine-tuning.
    Seeds are compared for the weights that they learn. Every difference has its interval over seeds. The tiny model is
    trained for 400 steps unless --steps says otherwise. If interrupted, run the same command again to resume.
    """

    VERB: ClassVar = "train elc-study"
    RUNS: ClassVar = "train_elc.study_steps:layer_weights_study"
    EXAMPLES: ClassVar = (
        "",
        "--text FOLDER --size small --seeds 5",
        "--bias 0,0.5,1,2,4",
        "--text babylm_10M --shares 1/8,1/4,1/2,1",
        "--glue FOLDER --set glue_tasks=rte,mrpc",
    )

    seeds: int = seeds_option(3)
    bias: tuple[float, ...] = option(
        (),
        "Scalars with which the previous layer begins, an arm for each, such as 0,0.5,1,2,4.",
        metavar="NUMBERS",
        least=-50,
        most=50,
    )
    shares: tuple[str, ...] = option(
        (),
        "Shares of the training text, with and without layer weights on each, such as 1/8,1/4,1/2,1.",
        metavar="SHARES",
    )

    def check(self) -> None:
        super().check()
        for flag, given in (("--bias", self.bias), ("--shares", self.share_values())):
            twice = [each for each in given if given.count(each) > 1]
            if twice:
                raise TrainError(f"{flag} names {twice[0]:g} twice; write every value once")

    def share_values(self) -> tuple[float, ...]:
        """The shares as numbers, ascending. Raises `TrainError` for one that is not above 0 and at most 1.

        >>> LayerWeightsStudy(shares=("1", "1/8")).share_values()
        (0.125, 1.0)
        """
        values = []
        for text in self.shares:
            try:
                share = Fraction(text)
            except (ValueError, ZeroDivisionError):
                share = Fraction(0)
            if not 0 < share <= 1:
                raise TrainError(
                    f"--shares takes shares of the training text, above 0 and up to 1, as in 1/8,1/4,1/2,1; found "
                    f"{text!r}"
                )
            values.append(float(share))
        return tuple(sorted(values))
