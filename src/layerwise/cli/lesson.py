"""The model that a training begins from: opened anew for each training, in float32."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib import resources
from pathlib import Path

from layerwise.cli.model import open_model
from layerwise.stack import Stack, weight_hash
from layerwise.stack.load import EMBEDDED
from layerwise.train.head import with_new_head
from layerwise.train.recipe import SUITED, Settings
from layerwise.train.training import Base


@dataclass(frozen=True, slots=True)
class Opener:
    """A model as it was asked for, opened once to be looked at; `place` is what transformers would load."""

    stack: Stack
    place: str
    again: Callable[[], Stack]
    device: str
    revision: str | None

    def base(self, classes: tuple[str, ...] | None) -> Base:
        """What trainings begin from: the model, or with `classes` the model with a new head for them."""
        if classes is None:
            return Base(self.again, weight_hash(self.stack.model), self.place)
        headed = partial(with_new_head, self.place, classes, device=self.device, revision=self.revision)
        return Base(headed, weight_hash(self.stack.model), self.place)


def base_of(model: str, tokenizer: str | None, layers: str | None, device: str, revision: str | None) -> Opener:
    """Open the model called `model`, weights in float32, and remember how."""

    def again() -> Stack:
        return open_model(model, tokenizer, layers, device, "float32", revision, False)

    place = str(resources.files("layerwise") / EMBEDDED[model]) if model in EMBEDDED else str(Path(model).expanduser())
    return Opener(again(), place, again, device, revision)


def settings_for(model: str) -> Settings:
    """The paper's settings, but for the embedded models those that suit their size."""
    return SUITED.get(model, Settings())
