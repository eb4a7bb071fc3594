"""What one model costs against another of its size: seconds of a training step, seconds of a pass, bytes kept.

Machines are noisy and slow down while they work, so two models are never timed one after the other: every round times
each of them once, in an order drawn anew, and what is compared is the ratio within a round,

    ratio = median over rounds of seconds(model, round) / seconds(against, round)

with the interval of that median by order statistics (exact for any distribution of rounds). Bytes are counted, not
sampled: the distinct storages that autograd keeps for the backward pass, which is what a training step needs beyond
weights, gradients and optimiser.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from layerwise.errors import MeasureError
from layerwise.measure.stats.estimate import Numbers, median_interval
from layerwise.stack.inputs import evaluating

Inputs = Mapping[str, Tensor]


@dataclass(frozen=True, slots=True)
class Ratio:
    """A ratio of seconds, the model's to the other's: its median over rounds and the interval of that median."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, eq=False)
class Overhead:
    """What a model costs: seconds of each round, shape (rounds,), and the bytes that a training pass keeps."""

    step_seconds: Numbers
    pass_seconds: Numbers
    kept_bytes: int


def overhead(
    models: Mapping[str, nn.Module],
    inputs: Inputs,
    *,
    rounds: int = 9,
    seed: int = 0,
    optimiser: Callable[[nn.Module], torch.optim.Optimizer] | None = None,
) -> dict[str, Overhead]:
    """Time every model on the same batch, round by round; what a model does with `inputs` must return a `loss`.

    A step is forward, backward and, with `optimiser`, its step. A pass is a forward pass in evaluation mode. The
    models' weights are as before when no optimiser is given; gradients are cleared. Raises `MeasureError` for fewer
    than six rounds, for which no 95 % interval of a median exists.
    """
    if rounds < 6:
        raise MeasureError(f"{rounds} rounds have no 95 % interval of their median; ask for at least 6")
    order = list(models)
    optimisers = {name: optimiser(model) if optimiser else None for name, model in models.items()}
    for name in order:  # once unseen: the first pass of a model allocates
        _step(models[name], inputs, optimisers[name])
    kept = {name: kept_bytes(models[name], inputs) for name in order}
    steps: dict[str, list[float]] = {name: [] for name in order}
    passes: dict[str, list[float]] = {name: [] for name in order}
    draw = Random(seed)
    for _ in range(rounds):
        draw.shuffle(order)
        for name in order:
            steps[name].append(_timed(lambda name=name: _step(models[name], inputs, optimisers[name])))  # type: ignore[misc]
            passes[name].append(_timed(lambda name=name: _pass(models[name], inputs)))  # type: ignore[misc]
    return {name: Overhead(np.array(steps[name]), np.array(passes[name]), kept[name]) for name in models}


def ratio(seconds: Numbers, against: Numbers, level: float = 0.95) -> Ratio:
    """The median over rounds of `seconds / against`, with its interval.

    >>> ratio(np.array([2.0, 2.2, 1.8, 2.0, 2.1, 1.9, 2.0]), np.ones(7))
    Ratio(value=2.0, low=1.8, high=2.2)
    """
    ratios = seconds / against
    low, high = median_interval(ratios.tolist(), level)
    return Ratio(float(np.median(ratios)), low, high)


def kept_bytes(model: nn.Module, inputs: Inputs) -> int:
    """Bytes of the distinct storages that a training pass keeps for its backward pass, the weights' own left out."""
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


def _step(model: nn.Module, inputs: Inputs, optimiser: torch.optim.Optimizer | None) -> None:
    model.train()
    torch.autograd.backward(_loss(model, inputs))
    if optimiser is not None:
        optimiser.step()
    model.zero_grad(set_to_none=True)


def _pass(model: nn.Module, inputs: Inputs) -> None:
    with evaluating(model), torch.inference_mode():
        model(**{name: value for name, value in inputs.items() if name != "labels"})


def _loss(model: nn.Module, inputs: Inputs) -> Tensor:
    output: Any = model(**inputs)
    loss: Tensor = output.loss
    return loss


def _timed(work: Callable[[], None]) -> float:
    if torch.accelerator.is_available():
        torch.accelerator.synchronize()
    begun = time.perf_counter()
    work()
    if torch.accelerator.is_available():
        torch.accelerator.synchronize()
    return time.perf_counter() - begun
