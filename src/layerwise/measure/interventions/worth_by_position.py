"""What a layer adds at each position, and what it is worth there: the two tables that are compared.

    added[l, p]    the norm of what layer l adds to the states that it reads at position p, over the norm of those
                   states: the mean over tokens, examples and orders
    worth[l, p]    the loss without layer l less the loss with it, in nats, when it stands at position p

Each batch of examples runs under all rotations of a random order of its own, so that every layer stands at every
position once, with all layers and without each. A batch is a unit: the tables are kept batch by batch, and what is
concluded from them has an interval over batches.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Subset

from layerwise.data.splits import sample
from layerwise.measure.activations.by_position import rotations_of, update_share
from layerwise.measure.interventions.accuracy import Numbers, inputs_and_labels, predictions_under
from layerwise.measure.language.lm_head import LanguageModelHead, find_head
from layerwise.measure.stats.grid import FEWEST_UNITS
from layerwise.plan import Plan
from layerwise.plan.edits import skip
from layerwise.stack import Stack
from layerwise.stack.executors.graph import build
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
    head, tables = find_head(stack), []
    with evaluating(stack.model), torch.inference_mode():
        for number, batch in enumerate(DataLoader(chosen, batch_size=size, collate_fn=collate)):
            if number == UNITS:
                break  # what is left over is less than a batch
            orders = rotations_of(stack.depth, f"{seed}/worth/{number}")
            tables.append(_of_batch(stack, head, orders, *inputs_and_labels(batch, stack.device)))
    added, worth = zip(*tables, strict=True)
    return PositionTables(np.array(added), np.array(worth))


def _of_batch(
    stack: Stack, head: LanguageModelHead | None, orders: Sequence[Plan], inputs: dict[str, Tensor], labels: Tensor
) -> tuple[Numbers, Numbers]:
    """Both tables of one batch, (layers, positions): its orders, and each without each layer, are one graph."""
    graph = build(plan for order in orders for plan in (order, *(skip(order, layer) for layer in order.order())))
    ways = {order: graph.way(graph.ends[order]) for order in orders}
    shares = dict.fromkeys(chain.from_iterable(ways.values()), 0.0)

    def watch(node: int, before: Tensor | None, after: Tensor) -> None:
        if before is not None and node in shares:
            shares[node] = update_share(inputs, before, after)

    outcomes = predictions_under(stack, head, graph, inputs, labels, watch=watch)
    added, worth = (np.zeros((stack.depth, stack.depth)) for _ in range(2))
    for order, way in ways.items():
        for position, layer in enumerate(order.order()):
            added[layer, position] = shares[way[position]]
            worth[layer, position] = outcomes[skip(order, layer)].mean_nll - outcomes[order].mean_nll
    return added, worth


def _spread(chosen: Sequence[int], units: int) -> list[int]:
    """The same examples, each unit with every `units`-th of them: a list that is sorted by class would give each
    unit few classes.
    """
    size = len(chosen) // units
    dealt = [list(chosen[start::units]) for start in range(units)]
    return [index for unit in dealt for index in unit[:size]] or list(chosen)
