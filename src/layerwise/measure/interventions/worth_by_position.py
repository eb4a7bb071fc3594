"""Compute what a layer adds at each position, and its importance there.

    added[l, p]    norm of the update of layer l at position p relative to the norm of the states it reads: the mean
                   over tokens, examples and orders
    worth[l, p]    the loss without layer l minus the loss with it, in nats, at position p

Each batch runs under all rotations of a random order, with all layers and without each. Batches are the units.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Subset

from layerwise.data.splits import sample
from layerwise.measure.activations.by_position import rotations_of, update_share
from layerwise.measure.activations.padding import counted_tokens
from layerwise.measure.interventions.accuracy import Numbers, inputs_and_labels, predictions_of
from layerwise.measure.language.lm_head import LanguageModelHead, find_head
from layerwise.measure.stats.grid import FEWEST_UNITS
from layerwise.plan import Plan
from layerwise.plan.edits import skip
from layerwise.stack import Stack
from layerwise.stack.inputs import evaluating

EXAMPLES = 512
"""At most so many examples are read, each under depth * (depth + 1) plans."""

UNITS = FEWEST_UNITS
"""Batches: as few as an interval takes, since each runs under so many plans."""


@dataclass(frozen=True, slots=True, eq=False)
class PositionTables:
    """`added` and `worth`, both of shape (batches, layers, positions)."""

    added: Numbers
    worth: Numbers


def worth_by_position(
    stack: Stack, examples: Any, collate: Callable[[Sequence[Any]], dict[str, Tensor]], *, seed: int = 0
) -> PositionTables:
    """Both tables of one model; the orders depend on the seed and the batch, never on the model."""
    chosen = Subset(examples, _spread(sample(examples, min(EXAMPLES, len(examples)), seed), UNITS))
    size = max(1, len(chosen) // UNITS)
    shape, head = (stack.depth, stack.depth), find_head(stack)
    added, worth = [], []
    for number, batch in enumerate(DataLoader(chosen, batch_size=size, collate_fn=collate)):
        if number == UNITS:
            break  # what is left over is less than a batch
        added.append(np.zeros(shape))
        worth.append(np.zeros(shape))
        with evaluating(stack.model), torch.inference_mode():
            _fill_tables(stack, head, batch, f"{seed}/worth/{number}", added[-1], worth[-1])
    return PositionTables(np.array(added), np.array(worth))


def _fill_tables(
    stack: Stack, head: LanguageModelHead | None, batch: Any, seed: str, added: Numbers, worth: Numbers
) -> None:
    inputs, labels = inputs_and_labels(batch, stack.device)
    captured = stack.capture(**inputs)
    counted = counted_tokens(inputs, captured.state)

    def loss(plan: Plan) -> float:
        under = partial(stack.under, plan, single_pass=True)
        return predictions_of(stack.model, head, inputs, labels, under=under).mean_nll

    for plan in rotations_of(stack.depth, seed):
        whole = loss(plan)
        for position, (layer, states) in enumerate(
            zip(plan.order(), pairwise(stack.states(plan, captured)), strict=True)
        ):
            added[layer, position] = update_share(*states, counted)
            worth[layer, position] = loss(skip(plan, layer)) - whole


def _spread(chosen: Sequence[int], units: int) -> list[int]:
    size = len(chosen) // units
    dealt = [list(chosen[start::units]) for start in range(units)]
    return [index for unit in dealt for index in unit[:size]] or list(chosen)
