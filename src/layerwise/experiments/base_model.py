"""The model that trainings begin from: opened anew for each of them, with weights in float32."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from layerwise.data.model_location import location_of
from layerwise.errors import TrainError
from layerwise.experiments.opening import open_model
from layerwise.experiments.options.model import LoadingOptions
from layerwise.stack import Stack, weight_hash
from layerwise.stack.quantisation import refuse_quantised
from layerwise.stack.streaming.resident import refuse_on_disk
from layerwise.train.finetune.new_head import with_new_head
from layerwise.train.training import Base


@dataclass(frozen=True, slots=True)
class BaseModel:
    """A model that trainings begin from, opened once to be looked at.

    `location` is what transformers would load, or `None` for a model that was opened in Python; `again` opens another
    copy.
    """

    stack: Stack
    location: str | None
    again: Callable[[], Stack]
    device: str
    revision: str | None

    def base(self, classes: tuple[str, ...] | None = None) -> Base:
        """What trainings begin from: the model, or with `classes` the model with a new head for them.

        Raises `TrainError` for a new head of a model that was opened in Python.
        """
        weights = weight_hash(self.stack.model)
        if classes is None:
            return Base(self.again, weights, self.location)
        if self.location is None:
            raise TrainError("a new head needs a model that can be loaded again: give its name or its folder")
        with_head = partial(with_new_head, self.location, classes, device=self.device, revision=self.revision)
        return Base(with_head, weights, self.location)


def base_model(model: str, options: LoadingOptions, stack: Stack | None = None) -> BaseModel:
    """Open the model called `model` with weights in float32, or take copies of an opened `stack`."""
    if stack is not None:
        refuse_quantised(stack.model, "train")
        refuse_on_disk(stack.model, "train")
        return BaseModel(stack, None, partial(_copy, stack), stack.device.type, None)
    again = partial(open_model, options, model=model, dtype="float32")
    opened = again()
    refuse_quantised(opened.model, "train")
    return BaseModel(opened, location_of(model), again, options.device, options.revision)


def _copy(stack: Stack) -> Stack:
    copied = copy.deepcopy(stack)
    copied.model.float()
    return copied
