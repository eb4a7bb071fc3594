"""A probe of places: whether a linear map of a layer's output tells where in the order it stood.

Layers that were trained to tell their place are right in nearly all cases. Whether that takes training is asked of
models without it: for each layer, ridge regression of the place (one-hot) on its normalised output,

    predicted place = argmax W_l norm(z)        z the first token of an image, the mean over tokens of a text

fitted on one set of examples and judged on another, under other random orders. That is the head of LayerShuffle-predict
(`layerwise.train.prediction`), fitted after the training instead of in it.
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

from layerwise.measure.float64 import exact_on_cpu
from layerwise.measure.places import pooled, watched
from layerwise.measure.ridge import Fit, Moments
from layerwise.measure.statistics import Numbers
from layerwise.measure.survey import Questions
from layerwise.plan import Plan
from layerwise.plan.samplers import Draws, Shuffle
from layerwise.stack import Stack
from layerwise.stack.inputs import evaluating
from layerwise.stack.state import returned_state

FITTED = 512
"""The most examples that the probe is fitted on; each of them is seen with every layer at every place."""

PENALTY = 0.001
"""A light one: there are many more outputs than features."""

STREAM = "position"
"""The orders that layers are asked for their places in."""

Collate = Callable[[Sequence[Any]], dict[str, Tensor]]


def probed(stack: Stack, fitted_on: Any, judged_on: Any, collate: Collate, questions: Questions) -> dict[int, Numbers]:
    """Place to how many predictions were right, and how many there were, in each batch: (2, batches)."""
    fits = _fitted(stack, Subset(fitted_on, range(min(FITTED, len(fitted_on)))), collate, questions)
    draws = Draws(Shuffle(), stack.depth, questions.seed, stream=STREAM)
    found: dict[int, list[tuple[int, int]]] = {place: [] for place in range(stack.depth)}
    for number, inputs in enumerate(_batches(stack, judged_on, collate, questions)):
        plan = draws.at(number)
        for layer, outputs in _outputs(stack, plan, inputs).items():
            place = plan.order().index(layer)
            right = fits[layer].predict(outputs).argmax(dim=1) == place
            found[place].append((int(right.sum()), len(right)))
    return {place: np.array(answers, dtype=np.float64).T for place, answers in found.items()}


def _fitted(stack: Stack, examples: Any, collate: Collate, questions: Questions) -> list[Fit]:
    """The probe of every layer: each batch runs under all rotations of an order of its own."""
    moments: list[Moments | None] = [None] * stack.depth
    for number, inputs in enumerate(_batches(stack, examples, collate, questions)):
        layers = list(range(stack.depth))
        random.Random(f"{questions.seed}/probe/{number}").shuffle(layers)
        for shift in range(stack.depth):
            plan = Plan.of(layers[shift:] + layers[:shift])
            for layer, outputs in _outputs(stack, plan, inputs).items():
                place = torch.eye(stack.depth, dtype=torch.float64)[plan.order().index(layer)]
                seen = Moments.of(outputs, place.expand(len(outputs), -1))
                before = moments[layer]
                moments[layer] = seen if before is None else before + seen
    return [of.fits([PENALTY])[0] for of in moments if of is not None]


def _batches(stack: Stack, examples: Any, collate: Collate, questions: Questions) -> Iterator[Mapping[str, Tensor]]:
    for batch in DataLoader(examples, batch_size=questions.batch(len(examples)), collate_fn=collate):
        yield {name: tensor.to(stack.device) for name, tensor in batch.items() if name != "labels"}


def _outputs(stack: Stack, plan: Plan, inputs: Mapping[str, Tensor]) -> dict[int, Tensor]:
    """What every layer gives under a plan, normalised: (batch, width) each, float64."""
    found: dict[int, Tensor] = {}

    def keep(layer: int, args: Any, kwargs: Any, output: Any) -> None:
        read = exact_on_cpu(pooled(returned_state(output), inputs))
        found[layer] = layer_norm(read, read.shape[-1:])

    with evaluating(stack.model), torch.inference_mode(), watched(stack, keep), stack.under(plan, single_pass=True):
        stack.model(**inputs)
    return found
