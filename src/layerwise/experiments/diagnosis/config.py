"""The configuration of a diagnosis: which of its parts are carried out on which model and text;
and of an analysis of layer weights: which edges are cut, and what they are evaluated on.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from layerwise.errors import DataError, MeasureError, RunError, near_matches
from layerwise.experiments.evaluation.config import GENERATED, PAIRS
from layerwise.experiments.experiment import AMOUNT_OF_TEXT, Alternatives, Experiment, Reads
from layerwise.experiments.option import option
from layerwise.experiments.options.common import (
    DataOptions,
    DeviceOptions,
    Dtype,
    DurationOptions,
    MemoryOptions,
    ModelOptions,
)
from layerwise.plan.schedule.allocation import MIN_EFFECT
from layerwise.results.run import is_run

PARTS = (
    "proxies",
    "structure",
    "deltas",
    "predictability",
    "ablation",
    "racing",
    "manipulation",
    "recovery",
    "agreement",
    "redundancy",
    "probing",
)
"""The parts of a diagnosis, in the order in which they are carried out: the later ones read the earlier ones."""

DEFAULT_PARTS = tuple(name for name in PARTS if name != "probing")
"""The parts that are about the layers on the text; a probe has sentences of its own."""

WITHIN_MINUTES = (
    DEFAULT_PARTS,
    tuple(name for name in DEFAULT_PARTS if name != "recovery"),
    ("proxies", "ablation", "racing", "agreement"),
    ("racing",),
)
"""The parts that `--minutes` carries out where none are named: the first of these for which there is time."""

DESCRIPTIVE = ("structure", "deltas", "probing")
"""The parts that conclude nothing about the model on its text: they are about its weights, or they describe."""

NEEDS = {"agreement": ("proxies", "ablation")}
"""The parts whose rows another part reads, and cannot do without."""

RECOVERY_STEPS = 16
"""Steps of the recovery: those of `layerwise.measure.recovery.finetuning.RecoveryRecipe`."""

CURVE_TOKENS = 1_000
"""Scored tokens of the parts that measure curves and sets, which are hundreds of variants of one model."""


@dataclass(frozen=True, kw_only=True)
class Diagnosis(MemoryOptions, ModelOptions, DurationOptions, Experiment):
    """Measure which layers of a model matter.

    Every score has an interval and a null beside it. It ends with what became of the published claims, and writes a
    report. If interrupted, run the same command again to resume. For a growth schedule from its rows, see layerwise
    train schedule.
    """

    VERB: ClassVar = "diagnose"
    RUNS: ClassVar = "diagnosis.run:diagnosis"
    EXAMPLES: ClassVar = (
        "demo",
        "HuggingFaceTB/SmolLM2-135M --text book.txt",
        "./my-model --text texts/ --parts racing --minutes 5",
    )

    ALTERNATIVES: ClassVar = (
        AMOUNT_OF_TEXT,
        Alternatives(("all_layers", "recovery_layers"), "say which layers recover"),
    )

    parts: tuple[str, ...] = option(
        DEFAULT_PARTS, f"Parts to carry out, from: {', '.join(PARTS)}; by default all but probing.", metavar="NAMES"
    )
    min_effect: float = option(MIN_EFFECT, metavar="NATS", rare=True, above=0)
    curve_tokens: int = option(
        CURVE_TOKENS,
        "Scored tokens for curves and sets of layers.",
        metavar="N",
        least=1,
        needs="parts=predictability|manipulation|redundancy",
        setting=True,
    )
    all_layers: bool = option(
        False, "Let every layer recover, trained alone and with the whole model.", rare=True, needs="parts=recovery"
    )
    recovery_steps: int = option(
        RECOVERY_STEPS,
        "Steps that a damaged layer may take to recover; published is 200.",
        metavar="N",
        least=1,
        most=100_000,
        rare=True,
        needs="parts=recovery",
    )
    recovery_layers: tuple[int, ...] = option(
        (),
        "Layers that recover; by default up to twelve, spread evenly.",
        metavar="NUMBERS",
        needs="parts=recovery",
        setting=True,
        least=0,
    )

    def check(self) -> None:
        """Raise `MeasureError` for an unknown part and for one whose needs are not among the parts.

        Raises `RunError` for a run in place of a model.
        """
        if is_run(self.model):
            raise RunError(
                f"{self.model} is the folder of a run, not a model; for what it measured write layerwise report "
                f"{self.model}, for a schedule from it layerwise train schedule {self.model} --output FILE"
            )
        if not self.parts:
            raise MeasureError(f"--parts names nothing; give some of {', '.join(PARTS)}")
        for name in self.parts:
            if name not in PARTS:
                raise MeasureError(f"unknown part {name!r}; {near_matches(name, PARTS)}")
        for name in self.parts:
            lacking = [need for need in NEEDS.get(name, ()) if need not in self.parts]
            if lacking:
                raise MeasureError(f"{name} compares the scores of other parts: add {' and '.join(lacking)} to --parts")

    def ordered_parts(self) -> tuple[str, ...]:
        """The parts in the order in which they are carried out, whatever order they were named in.

        >>> Diagnosis(model="demo", parts=("redundancy", "ablation", "proxies")).ordered_parts()
        ('proxies', 'ablation', 'redundancy')
        """
        return tuple(name for name in PARTS if name in self.parts)

    def settings(self) -> tuple[str, ...]:
        """What, besides the text and the seed, decides what a row means; for the manifest."""
        return (
            *self.ordered_parts(),
            f"curve_tokens:{self.curve_tokens}",
            f"min_effect:{self.min_effect:g}",
            *(("all_layers",) if self.all_layers else ()),
            *((f"recovery_steps:{self.recovery_steps:g}",) if self.recovery_steps != RECOVERY_STEPS else ()),
            *((f"recovery_layers:{','.join(map(str, self.recovery_layers))}",) if self.recovery_layers else ()),
        )


MSGS = ("msgs", "msgs-ours")
SUITES = (*PAIRS, *MSGS)
"""The suites whose phenomena edges are cut for: minimal pairs, and features that a model is fine-tuned on."""


@dataclass(frozen=True, kw_only=True)
class LayerWeightAnalysis(DeviceOptions, DataOptions, Experiment):
    """Show learned layer weights, measure what each edge does, and cut those that do little.

    Every edge is cut alone and the rise of the loss is measured: its weight does not say what it does. What is left
    after a cut is evaluated on other examples than those that chose it, against as many edges cut at random and by
    size. With --suite each edge is cut for every phenomenon of a suite, and for surface and linguistic features.
    """

    VERB: ClassVar = "diagnose layer-weights"
    RUNS: ClassVar = "layer_weights.run:layer_weights"
    EXAMPLES: ClassVar = (
        "RUN --keep 0.3",
        "MODEL --text FOLDER --tolerance 0.01",
        "RUN --suite pairs,msgs-ours",
    )
    READS: ClassVar = (Reads(("text", "validation", "test", "images", "max_length"), "!suite"),)

    model: str = option(
        help="Run with trained models, or the folder of one model.",
        metavar="RUN_OR_MODEL",
        positional=True,
        is_location=True,
    )
    keep: float | None = option(None, "Share of the edges to keep.", metavar="SHARE", needs="!suite", above=0, most=1)
    tolerance: float | None = option(
        None, "Cut until the loss has risen by so much, in nats.", metavar="NATS", needs="!suite", least=0
    )
    rounds: int = option(
        1,
        "How often the edges that are left are ranked anew.",
        metavar="N",
        least=1,
        most=1_000,
        needs=("keep", "tolerance"),
        setting=True,
    )
    output: Path | None = option(None, metavar="PATH", needs="!suite")
    limit: int | None = option(None, metavar="N", least=1, rare=True)
    suite: tuple[str, ...] = option((), metavar="NAMES")
    data: Path | None = option(None, metavar="FOLDER", needs="suite")
    password: str | None = option(None, metavar="TEXT", needs="suite", setting=True)
    tasks: tuple[str, ...] = option((), metavar="NAMES", rare=True, needs="suite=msgs|msgs-ours")
    learning_rate: float = option(
        3e-4,
        "Learning rate of the fine-tuning on those tasks.",
        metavar="X",
        needs="suite=msgs|msgs-ours",
        setting=True,
        above=0,
    )
    dtype: Dtype = option("auto", rare=True)
    overwrite: bool = option(False)

    @property
    def cuts(self) -> bool:
        """Whether edges are cut, or only ranked."""
        return self.keep is not None or self.tolerance is not None

    def check(self) -> None:
        """Raise `MeasureError` for a cut that cannot be, and `RunError` for a run beside a run."""
        for name in self.suite:
            if name not in SUITES:
                raise DataError(f"edges cannot be cut for {name!r}; {near_matches(name, SUITES)}")
            if name not in GENERATED and self.data is None:
                raise DataError(f"{name} is not part of layerwise: give the folder that holds its files, --data FOLDER")
        if self.output is not None and not self.cuts:
            raise MeasureError(
                f"nothing is cut that could be written to {self.output}: give --keep SHARE or --tolerance NATS"
            )
        if self.run is not None and is_run(self.model):
            raise RunError(f"the rows go into the run that was given, {self.model}: leave out --run {self.run}")
