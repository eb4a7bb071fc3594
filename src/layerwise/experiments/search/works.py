"""The work of a search (rounds, choice, held-out losses), counted with losses that make it cost the most."""

from __future__ import annotations

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
from layerwise.search.moves import BITS
from layerwise.search.one_shot import RANDOM_SETS, skip_effects
from layerwise.search.rungs import RungSettings, divided_text, grown
from layerwise.stack import Stack
from layerwise.stack.imatrix import imatrix_beside, layer_power

REPORTED = 12
"""Plans of a front that are measured on the report text, for each unit."""

WORST = RungSettings(alpha=0.0)
"""How rounds are run that only count what they cost: no test sends a candidate away."""

_ARMS = 6


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
    if config.method == "evolve":
        evaluator = GraphEvaluator(stack, rungs)
        worst = WorstCase(evaluator.tokens, evaluator.batch_tokens)
        for _ in evolve(worst, space, seed=config.seed):
            pass
        spent = worst.spent
    else:
        spent = worst_case(config, stack, rungs, space)
    fronts = REPORTED * (len(UNITS) if config.times else len(UNITS) - 1)
    of_part = {"select": config.width + _ARMS, "report": fronts + _ARMS + RANDOM_SETS}
    for name, plans in of_part.items():
        tokens = sum(batch.size for batch in parts[name].batches)
        spent.layer_tokens += plans * stack.depth * tokens
        spent.head_tokens += plans * tokens
    return CostEstimate(0, 0, 1, spent.layer_tokens, spent.head_tokens)


def counted(config: Search) -> Budget:
    """The budget as it can be counted before anything is timed: as large a share of the layers as of the milliseconds,
    or half of them."""
    budget = Budget.parse(config.budget)
    if budget.unit != "ms":
        return budget
    return Budget(layers=budget.ms if str(budget.ms).endswith("x") else "0.5x")
