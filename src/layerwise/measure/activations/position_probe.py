"""A probe of positions: whether a linear map of a layer's output predicts its position in the order.

Layers that were trained to predict their position are right in nearly all cases. Whether that takes training is
measured of models without it: for each layer, ridge regression of the position (one-hot) on its normalised output,

    predicted position = argmax W_l norm(z)        z the first token of an image, the mean over tokens of a text

fitted on one set of examples and evaluated on another, under other random orders. That is the head of
LayerShuffle-predict (`layerwise.train.position`), fitted after the training instead of in it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import layer_norm
from torch.utils.data import DataLoader, Subset

from layerwise.data.splits import sample
from layerwise.measure.activations.by_position import pooled, watched
from layerwise.measure.interventions.survey import EvaluationGrid
from layerwise.measure.stats.float64 import exact_on_cpu
from layerwise.measure.stats.ridge import Fit, Moments
from layerwise.measure.stats.statistics import Numbers
from layerwise.plan import Plan
from layerwise.plan.samplers import SeededSampler, Shuffle
from layerwise.stack import Stack
from layerwise.stack.executors.state import returned_state
from layerwise.stack.inputs import evaluating

FITTED = 512
"""The most examples that the probe is fitted on; each of them is seen with every layer at every position."""

PENALTY = 0.001
"""A light one: there are many more outputs than features."""

STREAM = "position"
"""The orders in which the positions of layers are predicted."""

Collate = Callable[[Sequence[Any]], dict[str, Tensor]]


def probed(stack: Stack, fitted_on: Any, judged_on: Any, collate: Collate, grid: EvaluationGrid) -> dict[int, Numbers]:
    """Position to how many predictions were right, and how many there were, in each batch: (2, batches)."""
    fits = _fitted(stack, Subset(fitted_on, sample(fitted_on, FITTED, grid.seed)), collate, grid)
    draws = SeededSampler(Shuffle(), stack.depth, grid.seed, stream=STREAM)
    counts: dict[int, list[tuple[int, int]]] = {position: [] for position in range(stack.depth)}
    for number, inputs in enumerate(_batches(stack, judged_on, collate, grid)):
        plan = draws.at(number)
        for layer, outputs in _outputs(stack, plan, inputs).items():
            position = plan.order().index(layer)
            right = fits[layer].predict(outputs).argmax(dim=1) == position
            counts[position].append((int(right.sum()), len(right)))
    return {position: np.array(answers, dtype=np.float64).T for position, answers in counts.items()}


def _fitted(stack: Stack, examples: Any, collate: Collate, grid: EvaluationGrid) -> list[Fit]:
    """The probe of every layer: each batch runs under all rotations of an order of its own."""
    moments: list[Moments | None] = [None] * stack.depth
    for number, inputs in enumerate(_batches(stack, examples, collate, grid)):
        layers = list(range(stack.depth))
        random.Random(f"{grid.seed}/probe/{number}").shuffle(layers)
        for shift in range(stack.depth):
            plan = Plan.of(layers[shift:] + layers[:shift])
            for layer, outputs in _outputs(stack, plan, inputs).items():
                one_hot = torch.eye(stack.depth, dtype=torch.float64)[plan.order().index(layer)]
                seen = Moments.of(outputs, one_hot.expand(len(outputs), -1))
                before = moments[layer]
                moments[layer] = seen if before is None else before + seen
    return [of.fits([PENALTY])[0] for of in moments if of is not None]


def _batches(stack: Stack, examples: Any, collate: Collate, grid: EvaluationGrid) -> Iterator[Mapping[str, Tensor]]:
    for batch in DataLoader(examples, batch_size=grid.batch_size(len(examples)), collate_fn=collate):
        yield {name: tensor.to(stack.device) for name, tensor in batch.items() if name != "labels"}


def _outputs(stack: Stack, plan: Plan, inputs: Mapping[str, Tensor]) -> dict[int, Tensor]:
    """What every layer gives under a plan, normalised: (batch, width) each, float64."""
    outputs: dict[int, Tensor] = {}

    def keep(layer: int, args: Any, kwargs: Any, output: Any) -> None:
        read = exact_on_cpu(pooled(returned_state(output), inputs))
        outputs[layer] = layer_norm(read, read.shape[-1:])

    with evaluating(stack.model), torch.inference_mode(), watched(stack, keep), stack.under(plan, single_pass=True):
        stack.model(**inputs)
    return outputs
