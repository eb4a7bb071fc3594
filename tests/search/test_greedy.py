"""Searches find planted idle or harmful layers, and the best set of coupled ones."""

import copy
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from layerwise.errors import MeasureError
from layerwise.plan import Plan
from layerwise.search.evaluator import GraphEvaluator
from layerwise.search.evolve import OFFSPRING, _offspring, evolve
from layerwise.search.greedy import Space, greedy, winners
from layerwise.search.rungs import Evaluator, RungSettings, grown
from layerwise.stack import Stack
from search.planted_objective import PlantedObjective
from search.planted_stack import planted_search
from tier import by_tier


def layers(plan: Plan) -> float:
    return float(len(plan.steps()))


def dropped(plan: Plan, depth: int) -> list[int]:
    return sorted(set(range(depth)) - plan.layers())


def best_of(evaluator: Evaluator, space: Space, **options: int) -> Plan:
    return next(iter(winners(greedy(evaluator, space, **options), space)))


def space(depth: int, limit: float) -> Space:
    return Space(depth, ("drop",), layers, limit)


def test_layers_that_do_nothing_or_harm_are_those_that_go() -> None:
    stack, text = planted_search([2, 5], [7], depth=9)
    evaluator = GraphEvaluator(stack, grown(text, 0))
    assert dropped(best_of(evaluator, space(9, 6), width=2), 9) == [2, 5, 7]


@pytest.mark.simulated
def test_the_best_set_of_coupled_layers_is_the_exhaustive_optimum() -> None:
    seeds = by_tier(fast=3, nightly=20)
    right = 0
    for seed in range(seeds):
        objective = PlantedObjective(16, coupling=0.3, seed=seed, documents=16)
        best = best_of(objective, space(16, 12))
        right += abs(objective.true(best) - objective.optimum(4)) < 1e-9
    assert right >= seeds - 1


@pytest.mark.parametrize("search", [greedy, evolve])
def test_each_of_two_models_gives_the_layer_that_is_spoilt_in_the_other(search: Callable[..., Any]) -> None:
    """Each copy of the model has noise in another layer; merged, they give the original."""
    first, text = planted_search([], [2], depth=6, windows=48)
    second, _ = planted_search([2], [4], depth=6, windows=48)
    able = copy.copy(first)
    able.sources = Stack.with_sources({"a": first, "b": second}).sources
    own = Space(6, ("drop",), layers, 6, ("b",))
    best = next(iter(winners(search(GraphEvaluator(able, grown(text, 0)), own), own)))
    sources = {step.layer: step.source for step in best.steps()}
    assert (len(sources), sources[2], sources[4]) == (6, "b", None)


def test_a_plan_is_measured_on_a_rung_only_while_it_is_in() -> None:
    objective = PlantedObjective(12, coupling=0.3, seed=0, documents=64)
    list(greedy(objective, space(12, 9)))
    by_rung = [len({plan for plan, at in objective.evaluated if at == rung}) for rung in range(3)]
    assert by_rung[0] > 2 * by_rung[1] >= 2 * by_rung[2]


def test_where_nothing_can_be_left_out_the_limit_is_refused() -> None:
    objective = PlantedObjective(4, coupling=0.3, seed=0, documents=16)
    with pytest.raises(MeasureError, match="nothing can be left out"):
        list(greedy(objective, Space(4, ("drop",), layers, 0.5), settings=RungSettings()))


def test_a_generation_is_as_large_as_it_says() -> None:
    young = _offspring(space(16, 12), Plan.parse("0-11"), Random(0))
    assert len(set(young)) == len(young) == OFFSPRING
    assert all(layers(plan) <= 12 for plan in young)
