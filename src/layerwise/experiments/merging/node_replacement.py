"""A lost node is replaced by one of another model: is that better than to go on without it?

The layers of a model lie on nodes in contiguous blocks. When a node is lost, its layers may be left out, or the same
layers of another model that was trained alike may stand in for them (Freiberger et al. 2024, section 1: "replaced by a
similar (not the same) node"). Every node of every model is lost once, and the next model stands in:

    node lost        without the layers of the node
    node replaced    with those of the other model, at the same positions

in order and in a random order of all layers, which is the same for both. Rows are of measure `merging`; the metrics
`accuracy_above` and `nll_above` of a node replaced, against a node lost, are the paired differences. A model counts
once, with the mean over its nodes, and intervals are over models.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from layerwise.data.splits import Splits
from layerwise.experiments.merging.spread import spread
from layerwise.measure.interventions.accuracy import Predictions, evaluate
from layerwise.measure.interventions.robustness import paired
from layerwise.plan import Plan, Visit
from layerwise.plan.node_layouts import node_layout
from layerwise.results.rows import Score
from layerwise.results.vocabulary import MERGING, NODE_LOST, NODE_REPLACED, RANDOM_ORDER, SEQUENTIAL
from layerwise.stack import Stack

NODES = 4
"""So many nodes, or as many as there are layers."""

ORDERS = (SEQUENTIAL, RANDOM_ORDER)


def node_replacement(
    arm: str, merged: Stack, models: Sequence[str], splits: Splits, seed: int, step: Callable[[], None]
) -> Iterator[Score]:
    """The rows of one arm; `merged` runs layers of all `models` by their names, `step` is called for every order."""
    for order in ORDERS:
        outcomes: dict[str, list[Predictions]] = {NODE_LOST: [], NODE_REPLACED: []}
        for lost, replaced in replacements(models, merged.depth, order, seed):
            for name, plan in ((NODE_LOST, lost), (NODE_REPLACED, replaced)):
                outcomes[name].append(evaluate(merged, plan, splits.test, splits.collate))
        by_model = {name: _by_model(each, len(models)) for name, each in outcomes.items()}
        for name, each in by_model.items():
            yield from spread(arm, name, order, each)
        pairs = list(zip(by_model[NODE_REPLACED], by_model[NODE_LOST], strict=True))
        of: dict[str, Any] = {"arm": arm, "part": NODE_REPLACED, "condition": order, "against": NODE_LOST}
        for metric, values in (("accuracy", "hits"), ("nll", "nll")):
            yield Score(MERGING, f"{metric}_above", *paired(pairs, values), **of)
        step()


def _by_model(outcomes: Sequence[Predictions], models: int) -> list[Predictions]:
    """The outcomes of each model, its nodes one after the other, as their mean example by example."""
    nodes = len(outcomes) // models
    return [_mean(outcomes[first : first + nodes]) for first in range(0, len(outcomes), nodes)]


def _mean(outcomes: Sequence[Predictions]) -> Predictions:
    top5 = [each.hits_top5 for each in outcomes if each.hits_top5 is not None]
    hits, nll, scored = (
        np.mean([getattr(each, name) for each in outcomes], axis=0) for name in ("hits", "nll", "scored")
    )
    return Predictions(hits, np.mean(top5, axis=0) if top5 else None, nll, scored)


def replacements(models: Sequence[str], depth: int, order: str, seed: int) -> Iterator[tuple[Plan, Plan]]:
    """For every node of every model the plan without it, and the plan with the next model's layers in its stead.

    >>> for lost, replaced in replacements(["a", "b"], depth=2, order="sequential", seed=0):
    ...     print(f"{lost} | {replaced}")
    a:1 | b:0 a:1
    a:0 | a:0 b:1
    b:1 | a:0 b:1
    b:0 | b:0 a:1
    """
    for number, model in enumerate(models):
        other = models[(number + 1) % len(models)]
        for index, node in enumerate(node_layout(depth, min(NODES, depth), "blocks")):
            layers = list(range(depth))
            if order == RANDOM_ORDER:
                random.Random(f"{seed}/replaced/{model}/{index}").shuffle(layers)
            kept = [Visit(layer, source=model) for layer in layers if layer not in node]
            mixed = [Visit(layer, source=other if layer in node else model) for layer in layers]
            yield Plan(tuple(kept)), Plan(tuple(mixed))
