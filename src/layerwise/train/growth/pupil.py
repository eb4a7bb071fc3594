"""The pupil: a model that is to grow, with the text that it reads and what its layers cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from layerwise.data.corpus import Corpus
from layerwise.data.splits import Splits
from layerwise.measure.provenance import described
from layerwise.plan.growth import ModelCost
from layerwise.results import Manifest
from layerwise.stack import Stack
from layerwise.train.growth.newborn import TINY
from layerwise.train.growth.study import FROM_RANDOM, FROM_TRAINED
from layerwise.train.processes import training_settings
from layerwise.train.recipe import Settings
from layerwise.train.training import Base

SUITED = {TINY: replace(FROM_RANDOM, learning_rate=1.2e-2, warmup=0.2)}
"""Settings that suit a model better than those for any that begins from random weights."""

FAMILY = "growth"
"""What the manifest of a run of growth calls itself."""


@dataclass(frozen=True, slots=True)
class Pupil:
    """A model that is to grow: what trainings begin from, what they read, and what its layers cost.

    `stack` is opened once to be looked at. `selecting` are the whole documents that validation windows are from.
    `trained` says whether trainings begin from weights that were trained; with `redraws` those of a checkpoint are
    drawn anew. `left_out` is the share of the tokens to train on that stand behind the last whole window of a document.
    """

    base: Base
    stack: Stack
    splits: Splits
    selecting: Corpus
    length: int
    cost: ModelCost
    trained: bool
    redraws: bool
    left_out: float

    @property
    def settings(self) -> Settings:
        """The settings of its trainings, unless options say otherwise."""
        return FROM_TRAINED if self.trained else SUITED.get(self.stack.source.name, FROM_RANDOM)

    @property
    def windows(self) -> int:
        """How many windows there are to train on."""
        return len(self.splits.train)


def manifest_of(
    pupil: Pupil, seed: int, command: tuple[str, ...] = (), arguments: Mapping[str, Any] | None = None
) -> Manifest:
    """The provenance of a run; arms and seeds can be added later. `arguments` are further `TrainingArguments`."""
    stack, splits = pupil.stack, pupil.splits
    windows: Sequence[Any] = getattr(splits.test, "windows", ())
    return described(
        stack, pupil.base.weights, corpus=splits.name, corpus_hash=splits.digest,
        documents=len({(window.task, window.document) for window in windows}),
        tokens=sum(window.scored for window in windows), window=pupil.length, families=(FAMILY,),
        tasks=("from scratch",) if pupil.redraws else (), seed=seed, command=command,
        settings=training_settings(arguments or {}),
    )  # fmt: skip
