"""Baselines of a search, which choose the layers to skip by a single score.

    block_influence        the layers that change the direction of hidden states least (ShortGPT, Men et al. 2024)
    angular_distance       the consecutive layers that change the direction of the last token least (Gromov et al. 2024)
    sweep_effect           the layers with the smallest loss increase when only they are skipped
    deepest_keep_last      the deepest layers except the last one (the simple baseline of Gromov et al.)
    random                 random layers

Layers are skipped in this order until the plan is within the limit. References: ShortGPT is arXiv 2403.03853, Gromov et
al. is arXiv 2403.17887.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from random import Random

import torch

from layerwise.measure.activations.block_influence import BlockInfluence
from layerwise.measure.activations.padding import token_mask
from layerwise.measure.language.evaluation_data import EvalData
from layerwise.plan import Plan, edits
from layerwise.results.rows import Score
from layerwise.search.edits import list_cheaper
from layerwise.search.greedy import Space
from layerwise.search.rungs import Evaluator, mean_losses
from layerwise.stack import Stack
from layerwise.stack.inputs import evaluating

RANDOM = "random"
DEEPEST = "deepest_keep_last"
RANDOM_SETS = 20

_MAX_MISSES = 100


def measure_turning(stack: Stack, text: Sequence[EvalData]) -> list[Score]:
    sums = BlockInfluence(stack.depth)
    with evaluating(stack.model), torch.inference_mode():
        for batch in (batch for data in text for batch in data.batches):
            inputs = {name: value.to(stack.device) for name, value in batch.inputs.items()}
            states = list(stack.states(Plan.identity(stack.depth), stack.capture(**inputs)))
            sums.add(states, token_mask(inputs, states[0]), batch.windows)
    return sums.scores()


def measure_skip_effects(evaluator: Evaluator, space: Space) -> dict[int, float]:
    plans = list_cheaper(space.original, ("drop",))
    losses = mean_losses(evaluator, plans, space.original)
    return {layer: losses[plan] for layer, plan in enumerate(plans)}


def build_one_shot_plans(space: Space, scores: Iterable[Score], effects: Mapping[int, float]) -> dict[str, Plan]:
    """Map the name of each score to its plan. Scores whose plan would have no layers are omitted."""
    rows = list(scores)
    influence = block_influence(rows)
    orders = {
        "block_influence": _ascending(influence),
        "sweep_effect": _ascending(effects),
        DEEPEST: list(range(space.depth - 2, -1, -1)),
    }
    plans = {name: skip_until_within(space, order) for name, order in orders.items()}
    plans["angular_distance"] = _skip_straightest_run(space, rows)
    return {name: plan for name, plan in plans.items() if plan is not None}


def block_influence(scores: Iterable[Score]) -> dict[int, float]:
    rows = (row for row in scores if row.metric == "block_influence")
    return {row.layer: row.value for row in rows if row.layer is not None}


def draw_random_sets(space: Space, count: int, seed: int) -> list[Plan]:
    draw = Random(f"{seed}/{space.depth}")
    drawn: dict[Plan, None] = {}
    misses = 0
    while len(drawn) < count and misses < _MAX_MISSES:
        plan = skip_until_within(space, draw.sample(range(space.depth), space.depth))
        misses = misses + 1 if plan is None or plan in drawn else 0
        if plan is not None:
            drawn.setdefault(plan)
    return list(drawn)


def skip_until_within(space: Space, order: Sequence[int]) -> Plan | None:
    """Skip as few of the first layers of `order` as the limit requires; return None if no layer would remain.

    >>> space = Space(4, ("drop",), lambda plan: float(len(plan.steps())), 2.0)
    >>> skip_until_within(space, [2, 0, 1, 3])
    Plan('1 3')
    """
    for count in range(1, len(order)):
        plan = edits.skip(space.original, *order[:count])
        if space.allows(plan):
            return plan
    return None


def _ascending(scores: Mapping[int, float]) -> list[int]:
    return sorted(scores, key=lambda layer: (scores[layer], layer))


def _skip_straightest_run(space: Space, rows: Iterable[Score]) -> Plan | None:
    named = [(row.layer, row.distance or 0, row.value) for row in rows if row.metric == "angular_distance"]
    distances = {(layer, length): value for layer, length, value in named if layer is not None}
    for count in range(1, space.depth):
        runs = [(start, length) for start, length in distances if length == count]
        for start, _ in sorted(runs, key=lambda run: (distances[run], run)):
            plan = edits.skip(space.original, *range(start, start + count))
            if space.allows(plan):
                return plan
    return None
