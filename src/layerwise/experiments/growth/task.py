"""The task of a training in phases: a model, the text that it learns from, and what its layers cost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from layerwise.data.splits import Splits
from layerwise.data.text.corpus import Corpus
from layerwise.errors import TrainError
from layerwise.experiments.growth.settings import DEFAULTS_BY_MODEL, FROM_RANDOM, FROM_TRAINED
from layerwise.experiments.provenance import described
from layerwise.results import Manifest
from layerwise.results.identity import model_name
from layerwise.schedule import ModelCost
from layerwise.stack import Stack
from layerwise.train.processes import training_settings
from layerwise.train.recipe import Settings, check_positive
from layerwise.train.training import Base

FAMILY = "growth"
"""The family in the manifest of a run of trainings in phases."""

_WORTH_A_NOTE = 0.005
"""The share of the tokens that is left out of training and not mentioned."""


@dataclass(frozen=True, slots=True)
class GrowthTask:
    """A model to train in phases: what trainings begin from, what they read, and what its layers cost.

    `stack` is the model opened once to be looked at. `validation_corpus` holds the whole documents that the validation
    windows are from. `pretrained` says whether trainings begin from weights that were trained; with `reinitialized`
    those of a checkpoint are drawn anew. `left_out` is the share of the tokens to train on that are behind the last
    whole window of a document.
    """

    base: Base
    stack: Stack
    splits: Splits
    validation_corpus: Corpus
    length: int
    cost: ModelCost
    pretrained: bool
    reinitialized: bool
    left_out: float

    @property
    def settings(self) -> Settings:
        """The settings of its trainings, unless options say otherwise."""
        return FROM_TRAINED if self.pretrained else DEFAULTS_BY_MODEL.get(self.stack.source.name, FROM_RANDOM)

    @property
    def windows(self) -> int:
        """How many windows there are to train on."""
        return len(self.splits.train)

    def steps_of(self, epochs: float, settings: Settings) -> int:
        """The steps in which the text is read so often. Raises `TrainError` for a text that does not fill a batch."""
        check_positive("epochs", epochs)
        if self.windows < settings.batch_size:
            raise TrainError(
                f"the text gives {self.windows:,} whole window(s) of {self.length} tokens to train on, fewer than a "
                f"batch of {settings.batch_size:,}; give more text, shorter windows (--max-length), or a --batch-size "
                f"of {self.windows:,} or less"
            )
        return max(1, round(epochs * self.windows / settings.batch_size))

    def manifest(self, seed: int, arguments: Mapping[str, Any], families: tuple[str, ...] = (FAMILY,)) -> Manifest:
        """The provenance of a run; arms and seeds can be added later. `arguments` are further `TrainingArguments`."""
        splits = self.splits
        windows: Sequence[Any] = getattr(splits.test, "windows", ())
        return described(
            self.stack, self.base.weights, corpus=splits.name, corpus_hash=splits.digest,
            documents=len({(window.task, window.document) for window in windows}),
            tokens=sum(window.scored for window in windows), window=self.length, families=families,
            tasks=("from scratch",) if self.reinitialized else (), seed=seed, settings=training_settings(arguments),
        )  # fmt: skip

    def describe(self) -> Iterator[str]:
        """The model, the weights that it begins from, and the text."""
        stack, splits = self.stack, self.splits
        weights = "its own weights" if self.pretrained else "random weights"
        yield f"{model_name(stack.source.name)}: {stack.depth} layers, {stack.device}, from {weights}"
        yield (
            f"{splits.name}: {self.windows:,} windows of {self.length} tokens to train, {len(splits.validation):,} to "
            f"select, {len(splits.test):,} to report, of different documents"
        )
        if self.left_out > _WORTH_A_NOTE:
            yield f"note: {self.left_out:.1%} of the tokens to train on are behind a document's last whole window"
