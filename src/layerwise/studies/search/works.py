"""The work of a search (rounds, choice, held-out losses), counted with losses that make it cost the most."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from layerwise.measure.interventions.sweep import CostEstimate
from layerwise.measure.language.evaluation_data import EvalData
from layerwise.plan import Plan
from layerwise.results import Score
from layerwise.search.bits import allocate, rule_plans
from layerwise.search.budget import UNITS
from layerwise.search.evaluator import GraphEvaluator, Spent, WorstCase
from layerwise.search.evolve import evolve
from layerwise.search.greedy import SearchStep, Space, greedy
from layerwise.search.moves import BITS, cheaper
from layerwise.search.one_shot import RANDOM_SETS, random_sets, skip_effects
from layerwise.search.prices import PlanPrices
from layerwise.search.rungs import RungSettings, divided_text, grown
from layerwise.stack import Stack
from layerwise.stack.executors.graph import build
from layerwise.stack.imatrix import imatrix_beside, layer_power
from layerwise.studies.search.settings import SearchSettings

REPORTED = 12
"""Plans of a front that are measured on the report text, for each unit."""

WORST = RungSettings(alpha=0.0)
"""How rounds are run that only count what they cost: no test sends a candidate away."""

_ARMS, _ONE_SHOT = 6, 4
"""The plans of simple rules: with types of layers, and without."""


def worst_case(stack: Stack, settings: SearchSettings, rungs: Sequence[EvalData], space: Space) -> Spent:
    evaluator = GraphEvaluator(stack, rungs)
    worst = WorstCase(evaluator.tokens, evaluator.batch_tokens)
    rounds: Iterable[SearchStep] = ()
    if BITS in space.moves:
        rounds = allocate(worst, space, rule_arms(stack, space, ()), width=settings.width, settings=WORST)
    elif settings.method == "evolve":
        rounds = evolve(worst, space, seed=settings.seed)
    elif settings.method == "greedy":
        rounds = greedy(worst, space, width=settings.width, settings=WORST)
    for _ in rounds:
        pass
    if space.moves != (BITS,):
        skip_effects(worst, space)
    spent = worst.spent
    for rung in rungs:
        spent = spent.plus(of_plans(stack, _arms(space) + 1, rung))
    return spent


def _arms(space: Space) -> int:
    return _ARMS if BITS in space.moves else _ONE_SHOT


def of_plans(stack: Stack, plans: int, data: EvalData, evaluations: int | None = None) -> Spent:
    tokens = sum(batch.size for batch in data.batches)
    return Spent((plans * stack.depth if evaluations is None else evaluations) * tokens, plans * tokens)


def confirmation(stack: Stack, settings: SearchSettings, prices: PlanPrices, space: Space, data: EvalData) -> Spent:
    random = random_sets(space, RANDOM_SETS, settings.seed) if space.moves == ("drop",) else []
    drawn = of_plans(stack, len(random) or RANDOM_SETS, data, build(random).evaluations if random else None)
    return drawn.plus(of_plans(stack, front_size(settings, prices, space) + _arms(space) + 2, data))


def rule_arms(stack: Stack, space: Space, scores: Iterable[Score]) -> dict[str, Plan]:
    """Return the allocation of each rule, with a stored llama.cpp importance matrix too.

    Raises `CheckpointError` for a matrix of another model.
    """
    path = imatrix_beside(stack)
    return rule_plans(space, scores, {} if path is None else layer_power(path, stack.depth))


def whole_search(
    stack: Stack, settings: SearchSettings, prices: PlanPrices, space: Space, text: EvalData
) -> CostEstimate:
    parts = divided_text(text, settings.seed)
    spent = worst_case(stack, settings, grown(parts["search"], settings.seed), space)
    spent = spent.plus(of_plans(stack, settings.width + _arms(space) + 1, parts["select"]))
    spent = spent.plus(confirmation(stack, settings, prices, space, parts["report"]))
    return CostEstimate(0, 0, 1, spent.layer_tokens, spent.head_tokens)


def front_size(settings: SearchSettings, prices: PlanPrices, space: Space) -> int:
    whole = space.whole
    smaller = cheaper(whole, ("drop",))
    if (
        space.moves == ("drop",)
        and not settings.is_timed
        and len({prices.of_plan(plan, "bytes") for plan in smaller}) == 1
    ):
        saved = space.price(whole) - space.price(smaller[0])
        levels = 1 + math.ceil((space.price(whole) - space.limit) / saved)
        return min(REPORTED, levels if settings.method != "one-shot" else 2 + _ONE_SHOT)
    return REPORTED * (len(UNITS) if settings.is_timed else len(UNITS) - 1)
