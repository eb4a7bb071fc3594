"""Estimate the worst-case cost of a search."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from layerwise.measure.interventions.sweep import CostEstimate
from layerwise.measure.language.evaluation_data import EvalData
from layerwise.plan import Plan
from layerwise.results import Score
from layerwise.search.bits import allocate, build_rule_plans
from layerwise.search.budget import UNITS
from layerwise.search.costs import PlanCosts
from layerwise.search.edits import BITS, list_cheaper
from layerwise.search.evaluator import GraphEvaluator, SearchCost, WorstCaseEvaluator
from layerwise.search.evolve import evolve
from layerwise.search.greedy import SearchStep, Space, greedy
from layerwise.search.one_shot import RANDOM_SETS, draw_random_sets, measure_skip_effects
from layerwise.search.rungs import RungSettings, split_rungs, split_text
from layerwise.stack import Stack
from layerwise.stack.executors.graph import build
from layerwise.stack.imatrix import imatrix_beside, layer_power
from layerwise.studies.search.settings import SearchSettings

MAX_REPORTED = 12
"""Maximum number of plans of a Pareto front (one per unit of cost) that are evaluated on held-out text."""

WORST = RungSettings(alpha=0.0)
"""Settings of the most expensive rounds, in which the test eliminates no candidate."""

_BITS_CONTROLS, _ONE_SHOT_CONTROLS = 6, 4


def estimate_worst_case(stack: Stack, settings: SearchSettings, rungs: Sequence[EvalData], space: Space) -> SearchCost:
    evaluator = GraphEvaluator(stack, rungs)
    worst = WorstCaseEvaluator(evaluator.tokens, evaluator.batch_tokens)
    rounds: Iterable[SearchStep] = ()
    if BITS in space.edits:
        rounds = allocate(worst, space, rule_controls(stack, space, ()), width=settings.width, settings=WORST)
    elif settings.method == "evolve":
        rounds = evolve(worst, space, seed=settings.seed)
    elif settings.method == "greedy":
        rounds = greedy(worst, space, width=settings.width, settings=WORST)
    for _ in rounds:
        pass
    if space.edits != (BITS,):
        measure_skip_effects(worst, space)
    spent = worst.spent
    for rung in rungs:
        spent = spent.add(count_plans(stack, _count_controls(space) + 1, rung))
    return spent


def _count_controls(space: Space) -> int:
    return _BITS_CONTROLS if BITS in space.edits else _ONE_SHOT_CONTROLS


def count_plans(stack: Stack, plans: int, data: EvalData, evaluations: int | None = None) -> SearchCost:
    tokens = sum(batch.size for batch in data.batches)
    return SearchCost((plans * stack.depth if evaluations is None else evaluations) * tokens, plans * tokens)


def estimate_confirmation(
    stack: Stack, settings: SearchSettings, costs: PlanCosts, space: Space, data: EvalData
) -> SearchCost:
    random = draw_random_sets(space, RANDOM_SETS, settings.seed) if space.edits == ("drop",) else []
    drawn = count_plans(stack, len(random) or RANDOM_SETS, data, build(random).evaluations if random else None)
    return drawn.add(count_plans(stack, front_size(settings, costs, space) + _count_controls(space) + 2, data))


def rule_controls(stack: Stack, space: Space, scores: Iterable[Score]) -> dict[str, Plan]:
    """Map each rule for choosing quantization types to its plan.

    If there is a llama.cpp importance matrix next to the model, one rule uses it.
    """
    path = imatrix_beside(stack)
    return build_rule_plans(space, scores, {} if path is None else layer_power(path, stack.depth))


def estimate_search(
    stack: Stack, settings: SearchSettings, costs: PlanCosts, space: Space, text: EvalData
) -> CostEstimate:
    parts = split_text(text, settings.seed)
    spent = estimate_worst_case(stack, settings, split_rungs(parts["search"], settings.seed), space)
    spent = spent.add(count_plans(stack, settings.width + _count_controls(space) + 1, parts["select"]))
    spent = spent.add(estimate_confirmation(stack, settings, costs, space, parts["report"]))
    return CostEstimate(0, 0, 1, spent.layer_tokens, spent.head_tokens)


def front_size(settings: SearchSettings, costs: PlanCosts, space: Space) -> int:
    original = space.original
    smaller = list_cheaper(original, ("drop",))
    if (
        space.edits == ("drop",)
        and not settings.is_timed
        and len({costs.compute(plan, "bytes") for plan in smaller}) == 1
    ):
        saved = space.cost(original) - space.cost(smaller[0])
        levels = 1 + math.ceil((space.cost(original) - space.limit) / saved)
        return min(MAX_REPORTED, levels if settings.method != "one-shot" else 2 + _ONE_SHOT_CONTROLS)
    return MAX_REPORTED * (len(UNITS) if settings.is_timed else len(UNITS) - 1)
