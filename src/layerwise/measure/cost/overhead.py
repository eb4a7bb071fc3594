"""Compare two models' seconds per training step, seconds per pass, and bytes kept for the backward pass.

Models are timed in turns and compared within a round (`layerwise.measure.cost.pass_time`). Bytes are those of the
distinct storages that autograd keeps.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from layerwise.errors import MeasureError
from layerwise.measure.cost.pass_time import LEAST_ROUNDS, PassClock, in_turns
from layerwise.measure.stats.estimate import Numbers
from layerwise.stack.inputs import evaluating

Inputs = Mapping[str, Tensor]


@dataclass(frozen=True, slots=True, eq=False)
class Overhead:
    """What a model costs: seconds of each round, shape (rounds,), and the bytes that a training pass keeps."""

    step_seconds: Numbers
    pass_seconds: Numbers
    kept_bytes: int


def overhead(models: Mapping[str, nn.Module], inputs: Inputs, *, rounds: int = 9) -> dict[str, Overhead]:
    """Time every model on the same batch, round by round; its output for `inputs` must have a `loss`.

    A step is forward and backward, a pass is forward in evaluation mode. Gradients are cleared.
    Raises `MeasureError` for fewer rounds than an interval of a median needs.
    """
    if rounds < LEAST_ROUNDS:
        raise MeasureError(f"{rounds} rounds give no interval of a median; take {LEAST_ROUNDS} or more")
    for model in models.values():  # once unseen: the first pass of a model allocates
        _step(model, inputs)
    kept = {name: kept_bytes(model, inputs) for name, model in models.items()}
    clock = PassClock(next(iter(inputs.values())).device)

    def timed(model: nn.Module, _: int) -> tuple[float, float]:
        return clock.seconds(lambda: _step(model, inputs)), clock.seconds(lambda: _pass(model, inputs))

    taken = list(in_turns({name: partial(timed, model) for name, model in models.items()}, range(rounds)))
    seconds = {name: np.array([each[name] for each in taken]).T for name in models}
    return {name: Overhead(steps, passes, kept[name]) for name, (steps, passes) in seconds.items()}


def kept_bytes(model: nn.Module, inputs: Inputs) -> int:
    weights = {tensor.untyped_storage().data_ptr() for tensor in model.parameters()}
    kept: dict[int, int] = {}

    def note(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    model.train()
    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        loss = _loss(model, inputs)
    torch.autograd.backward(loss)
    model.zero_grad(set_to_none=True)
    return sum(kept.values())


def _step(model: nn.Module, inputs: Inputs) -> None:
    model.train()
    torch.autograd.backward(_loss(model, inputs))
    model.zero_grad(set_to_none=True)


def _pass(model: nn.Module, inputs: Inputs) -> None:
    with evaluating(model), torch.inference_mode():
        model(**{name: value for name, value in inputs.items() if name != "labels"})


def _loss(model: nn.Module, inputs: Inputs) -> Tensor:
    output: Any = model(**inputs)
    loss: Tensor = output.loss
    return loss
