"""The work of a search (rounds, choice, held-out losses), counted with losses that make it cost the most."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from layerwise.experiments.search.config import Search
from layerwise.measure.interventions.sweep import CostEstimate
from layerwise.measure.language.evaluation_data import EvalData
from layerwise.plan import Plan
from layerwise.results import Score
from layerwise.search.bits import allocate, rule_plans
from layerwise.search.budget import UNITS, Budget
from layerwise.search.cost import Spent, WorstCase
from layerwise.search.evaluator import GraphEvaluator
from layerwise.search.evolve import evolve
from layerwise.search.greedy import Space, greedy
from layerwise.search.moves import BITS, cheaper
from layerwise.search.one_shot import RANDOM_SETS, random_sets, skip_effects
from layerwise.search.prices import PlanPrices
from layerwise.search.rungs import RungSettings, divided_text, grown
from layerwise.stack import Stack
from layerwise.stack.executors.graph import build
from layerwise.stack.imatrix import imatrix_beside, layer_power

REPORTED = 12
"""Plans of a front that are measured on the report text, for each unit."""

WORST = RungSettings(alpha=0.0)
"""How rounds are run that only count what they cost: no test sends a candidate away."""

_ARMS, _ONE_SHOT = 6, 4
"""The plans of simple rules: with types of layers, and without."""


def worst_case(config: Search, stack: Stack, rungs: Sequence[EvalData], space: Space) -> Spent:
    """What the greedy search costs at most, in layer evaluations and heads times tokens."""
    evaluator = GraphEvaluator(stack, rungs)
    worst = WorstCase(evaluator.tokens, evaluator.batch_tokens)
    if BITS in space.moves:
        rounds = allocate(worst, space, rule_arms(stack, space, ()), width=config.width, settings=WORST)
    else:
        rounds = greedy(worst, space, width=config.width, settings=WORST)
    for _ in rounds:
        pass
    if space.moves != (BITS,):
        skip_effects(worst, space)
    return worst.spent


def rule_arms(stack: Stack, space: Space, scores: Iterable[Score]) -> dict[str, Plan]:
    """Return the allocation of each rule, with a stored llama.cpp importance matrix too.

    Raises `CheckpointError` for a matrix of another model.
    """
    path = imatrix_beside(stack)
    return rule_plans(space, scores, {} if path is None else layer_power(path, stack.depth))


def whole_search(config: Search, stack: Stack, space: Space, text: EvalData) -> CostEstimate:
    """What a search and its confirmation cost at most."""
    parts = divided_text(text, config.seed)
    rungs = grown(parts["search"], config.seed)
    if config.method in ("evolve", "one-shot"):
        evaluator = GraphEvaluator(stack, rungs)
        worst = WorstCase(evaluator.tokens, evaluator.batch_tokens)
        for _ in evolve(worst, space, seed=config.seed) if config.method == "evolve" else ():
            pass
        skip_effects(worst, space)
        spent = worst.spent
    else:
        spent = worst_case(config, stack, rungs, space)
    arms = _ARMS if BITS in space.moves else _ONE_SHOT
    selected = arms if config.method == "one-shot" else config.width + arms
    random = random_sets(space, RANDOM_SETS, config.seed) if space.moves == ("drop",) else []
    of_part = {
        "search": (arms + 1, (arms + 1) * stack.depth),
        "select": (selected, selected * stack.depth),
        "report": (len(random), build(random).evaluations) if random else (RANDOM_SETS, RANDOM_SETS * stack.depth),
    }
    reported = front_size(config, stack, space) + arms + 1
    for name, (plans, evaluations) in [*of_part.items(), ("report", (reported, reported * stack.depth))]:
        tokens = sum(batch.size for batch in parts[name].batches)
        spent.layer_tokens += evaluations * tokens
        spent.head_tokens += plans * tokens
    return CostEstimate(0, 0, 1, spent.layer_tokens, spent.head_tokens)


def front_size(config: Search, stack: Stack, space: Space) -> int:
    """Return the most plans that the fronts report: one for each number of layers where all layers cost the same."""
    prices, whole = PlanPrices.of(stack), space.whole
    smaller = cheaper(whole, ("drop",))
    if space.moves == ("drop",) and not config.times and len({prices.of_plan(plan, "bytes") for plan in smaller}) == 1:
        saved = space.price(whole) - space.price(smaller[0])
        levels = 1 + math.ceil((space.price(whole) - space.limit) / saved)
        return min(REPORTED, levels if config.method != "one-shot" else 2 + _ONE_SHOT)
    return REPORTED * (len(UNITS) if config.times else len(UNITS) - 1)


def counted(config: Search) -> Budget:
    """The budget as it can be counted before anything is timed: as large a share of the layers as of the milliseconds,
    or half of them."""
    budget = Budget.parse(config.budget)
    if budget.unit != "ms":
        return budget
    return Budget(layers=budget.ms if str(budget.ms).endswith("x") else "0.5x")
