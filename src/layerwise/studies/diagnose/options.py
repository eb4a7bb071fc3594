"""The configuration of a diagnosis: which of its parts are carried out on which model and text."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from typing import ClassVar

from layerwise.errors import MeasureError, OptionError, RunError, near_matches
from layerwise.plan.schedule.allocation import MIN_EFFECT
from layerwise.results.run import is_run
from layerwise.runner.experiment import AMOUNT_OF_TEXT, Alternatives, Experiment
from layerwise.runner.option import option
from layerwise.runner.options.common import (
    DurationOptions,
    MemoryOptions,
    ModelOptions,
)

PARTS = (
    "proxies",
    "deltas",
    "predictability",
    "ablation",
    "racing",
    "manipulation",
    "recovery",
    "redundancy",
    "probing",
)
"""The parts of a diagnosis, in the order in which they are carried out: the later ones read the earlier ones."""

DEFAULT_PARTS = tuple(name for name in PARTS if name != "probing")
"""The parts that are about the layers on the text; a probe has sentences of its own."""

WITHIN_MINUTES = (
    DEFAULT_PARTS,
    tuple(name for name in DEFAULT_PARTS if name != "recovery"),
    ("proxies", "ablation", "racing"),
    ("proxies", "racing"),
    ("racing",),
)
"""The parts that are carried out where none are named: the first of these for which there is time."""

WITHOUT_TEXT = ("deltas", "ablation", "racing")
"""The parts that a caller's own batches suffice for."""

DESCRIPTIVE = ("deltas", "probing")
"""The parts that conclude nothing about the model on its text: they are about its weights, or they describe."""

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
    RUNS: ClassVar = "diagnose.steps:diagnosis"
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

    def alternatives(self) -> tuple[Diagnosis, ...]:
        """Return the diagnosis, followed by smaller ones if no parts were named: those that read every given option."""
        questions = [self]
        for parts in WITHIN_MINUTES[1:] if self.parts == DEFAULT_PARTS else ():
            with suppress(OptionError):
                questions.append(replace(self, parts=parts))
        return tuple(questions)

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
