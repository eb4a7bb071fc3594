"""Layer costs against hand-made schedules, what a budget buys, who learns when, and how training is allocated."""

import random
import re
from collections.abc import Callable
from itertools import combinations, product
from math import prod
from statistics import fmean
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drawn_schedules import schedules
from layerwise.errors import PlanError
from layerwise.measure.stats.estimate import SampleEstimate
from layerwise.measure.stats.verdicts import conclude
from layerwise.plan.schedule import GrowthSchedule, ModelCost, Phase, presets, share_of_uniform, steps_for
from layerwise.plan.schedule.allocation import MIN_EFFECT, Importance, allocation, explain_allocation
from layerwise.plan.schedule.cost import (
    MIN_SHARE,
    embedding_share,
    flops_per_token,
    head_share,
    layer_epochs,
    layer_shares,
    phase_shares,
)
from layerwise.plan.schedule.presets import lisa, published, ramp

COSTS = st.floats(0.01, 100)


def costs(depth: int) -> st.SearchStrategy[ModelCost]:
    return st.builds(ModelCost, st.tuples(*[COSTS] * depth), st.floats(0, 10), st.floats(0, 10))


@pytest.mark.parametrize(
    ("share_of", "fields", "share"),
    [
        (embedding_share, {"trains": (0,)}, 1),
        (embedding_share, {"trains": (4, 6), "embedding": False}, 1 / 3),
        (head_share, {"trains": (0,), "embedding": False}, 1),
        (head_share, {"trains": (), "embedding": False}, 2 / 3),
        (head_share, {"trains": (0,), "head": False}, 2 / 3),
    ],
)
def test_embedding_and_head(share_of: Callable[[Phase], float], fields: dict[str, Any], share: float) -> None:
    assert share_of(Phase("some", 1, **fields)) == pytest.approx(share)


def test_flops_by_hand() -> None:
    cost = ModelCost((10.0, 20.0), embedding=4.0, head=8.0)
    assert flops_per_token(Phase("all", 1, (0, 1)), cost) == 3 * 42
    # layer 0 forward 10; layer 1 three times 20; embedding forward 4; head forward and input gradient 16
    assert flops_per_token(Phase("top", 1, (1,), embedding=False, head=False), cost) == pytest.approx(10 + 60 + 4 + 16)


def counted(running: tuple[int, ...], learns: frozenset[int], embedding: bool, depth: int) -> list[float]:
    found = []
    for layer in range(depth):
        passes = 1 + (embedding or any(below <= layer for below in learns)) + (layer in learns)
        found.append(passes / 3 if layer in running else 0.0)
    return found


@given(schedule=schedules(depth=6), data=st.data())
def test_shares_are_the_mean_over_all_draws(schedule: GrowthSchedule, data: st.DataObject) -> None:
    phase = data.draw(st.sampled_from(schedule.phases))
    running, chances = phase.running(6), phase.dropped(0.5, 6)
    drawn = len(phase.trains) if phase.sample is None else phase.sample
    expected = []
    for learns in combinations(phase.trains, drawn):
        expected.append(counted(running, frozenset(learns), phase.embedding, 6))
    means = [fmean(column) for column in zip(*expected, strict=True)]
    kept = dict(zip(running, (1 - chance for chance in chances), strict=True))
    assert layer_shares(phase, 6) == pytest.approx([means[layer] * kept.get(layer, 0) for layer in range(6)])


def test_dropping_where_the_embedding_learns_is_the_mean_over_all_subsets() -> None:
    phase = Phase("ramp", 1, (0, 2), drop=(0.2, 0.8))
    chances = phase.dropped(0.5, 3)
    expected = [0.0, 0.0, 0.0]
    for stays in product([True, False], repeat=3):
        weight = prod(1 - chance if stay else chance for chance, stay in zip(chances, stays, strict=True))
        running = tuple(layer for layer in range(3) if stays[layer])
        for layer, share in enumerate(counted(running, frozenset({0, 2}), True, 3)):
            expected[layer] += weight * share
    assert layer_shares(phase, 3) == pytest.approx(expected)


@given(depth=st.integers(1, 9), data=st.data())
def test_uniform_costs_itself(depth: int, data: st.DataObject) -> None:
    cost = data.draw(costs(depth))
    assert share_of_uniform(presets.uniform(depth), cost) == pytest.approx(1)
    assert steps_for(presets.uniform(depth), cost, 123) == 123


@given(schedule=schedules(), data=st.data())
def test_no_schedule_costs_more_than_uniform(schedule: GrowthSchedule, data: st.DataObject) -> None:
    cost = data.draw(costs(schedule.depth))
    assert 0 <= share_of_uniform(schedule, cost) <= 1 + 1e-9


@given(schedule=schedules(), budget=st.integers(400, 20_000), data=st.data())
def test_the_steps_that_a_budget_buys_cost_it_within_one_percent(
    schedule: GrowthSchedule, budget: int, data: st.DataObject
) -> None:
    cost = data.draw(costs(schedule.depth))
    if share_of_uniform(schedule, cost) < MIN_SHARE:
        with pytest.raises(PlanError, match="costs less than 1e-06 of a step of uniform training"):
            steps_for(schedule, cost, budget)
        return
    bounds = schedule.bounds(steps_for(schedule, cost, budget))
    spent = sum(
        (end - first) * flops_per_token(phase, cost)
        for phase, (first, end) in zip(schedule.phases, bounds, strict=True)
    )
    assert spent == pytest.approx(budget * 3 * cost.total, rel=0.01)


@pytest.mark.parametrize("name", sorted(presets.PRESETS))
@pytest.mark.parametrize("depth", [2, 6, 12, 30])
def test_every_preset_fills_a_small_budget_within_one_percent(name: str, depth: int) -> None:
    schedule = presets.preset(name, depth)
    cost = ModelCost((7.0,) * depth, embedding=0.0, head=11.0)
    bounds = schedule.bounds(steps_for(schedule, cost, 150))
    spent = sum((end - first) * share for share, (first, end) in zip(phase_shares(schedule, cost), bounds, strict=True))
    assert spent == pytest.approx(150, rel=0.01)


def test_the_published_phases_save_a_fifth_and_not_half() -> None:
    """Of 12 layers 2, 2, 2, 4, 2 learn in phases of 24, 16, 16, 16 and 16 %; the rest costs two thirds."""
    cost = ModelCost((1.0,) * 12, embedding=0.0, head=0.0)
    by_hand = 0.72 * (2 + 10 * 2 / 3) / 12 + 0.16 * (4 + 8 * 2 / 3) / 12 + 0.12
    assert share_of_uniform(presets.published(12), cost) == pytest.approx(by_hand)
    assert 0.75 < by_hand < 0.8


RARELY = Phase("rarely", 1, (0,), embedding=False, drop=(0.9999999, 0.9999999))


@pytest.mark.parametrize(
    ("schedule", "depth", "budget", "message"),
    [
        (published(12), 3, 100, "the schedule published is for a model of 12 layers, but this one has 3"),
        (published(12), 12, 0, "the budget must be an integer number of steps of at least 1"),
        (published(12), 12, 2, "phase growth: a share of 0.16 is less than one of 3 steps"),
        (
            GrowthSchedule("free", 1, (RARELY,)),
            1,
            100,
            "a step of the schedule free costs less than 1e-06 of a step of uniform training",
        ),
    ],
)
def test_budgets_that_cannot_be_filled(schedule: GrowthSchedule, depth: int, budget: int, message: str) -> None:
    with pytest.raises(PlanError, match=message):
        steps_for(schedule, ModelCost((1.0,) * depth, 0.0, 0.0), budget)


@pytest.mark.parametrize(
    "wrong", [((1.0, -1.0), 0.0, 0.0), ((1.0,), float("nan"), 0.0), ((), 1.0, 1.0), ((0.0,), 0.0, 0.0)]
)
def test_invalid_costs_are_refused(wrong: Any) -> None:
    with pytest.raises(PlanError, match="cost"):
        ModelCost(*wrong)


def test_the_published_core_learns_longest_and_chance_is_taken_at_its_mean() -> None:
    learned = layer_epochs(published(12), epochs=125.0)
    assert learned == pytest.approx((35, 35, 35, 35, 45, 45, 15, 35, 55, 55, 35, 15))
    assert layer_epochs(lisa(12), epochs=60.0) == pytest.approx([10.0] * 12)
    assert layer_epochs(ramp(2), epochs=100.0) == pytest.approx([87.5, 75.0])


STRONG, WEAK, NOTHING, HARMFUL = (
    Importance(0.4, 0.3, 0.5),
    Importance(0.1, 0.05, 0.15),
    Importance(0.002, -0.004, 0.008),
    Importance(-0.2, -0.3, -0.1),
)
INCONCLUSIVE, LARGE = Importance(-0.02, -0.14, 0.1), Importance(1.25, -0.28, 2.79)

effects = st.builds(
    lambda value, radius: Importance(value, value - radius, value + radius),
    st.floats(-2, 5, allow_subnormal=False).map(lambda value: round(value, 4)),
    st.floats(0, 1).map(lambda radius: round(radius, 4)),
)
importances = st.lists(effects, min_size=1, max_size=16).filter(
    lambda found: any(each.detected(MIN_EFFECT) for each in found)
)
levels_of = st.integers(1, 12)


@given(importances, levels_of)
def test_layers_learn_unless_an_effect_is_excluded(importance: list[Importance], levels: int) -> None:
    found = allocation(importance, phases=levels)
    for each, parts in zip(importance, found.parts, strict=True):
        assert (parts > 0) == (not each.is_excluded(MIN_EFFECT))
        assert 0 <= parts <= levels
    strongest = max((each for each in importance if each.detected(MIN_EFFECT)), key=lambda each: each.value)
    assert found.parts[importance.index(strongest)] == levels
    ranked = sorted(layer for layer, parts in enumerate(found.parts) if parts)
    ranked.sort(key=lambda layer: importance[layer].value)
    assert [found.parts[layer] for layer in ranked] == sorted(found.parts[layer] for layer in ranked)


@given(importances, levels_of)
def test_the_schedule_gives_every_layer_its_share_at_the_end(importance: list[Importance], levels: int) -> None:
    found = allocation(importance, phases=levels)
    phases = found.schedule().phases
    assert len(phases) <= levels
    for layer, parts in enumerate(found.parts):
        assert sum(phase.share for phase in phases if layer in phase.trains) == pytest.approx(parts / levels)
        learning = [layer in phase.trains for phase in phases]
        assert learning == sorted(learning)  # a layer that has begun to learn continues
    assert all(phase.trains and phase.embedding and phase.head for phase in phases)
    learning_of_all = sum(phase.share * len(phase.trains) for phase in phases) / len(importance)
    assert found.spent == pytest.approx(learning_of_all)


@given(importances, st.integers(0, 1000))
def test_exchanging_layers_exchanges_their_roles(importance: list[Importance], seed: int) -> None:
    order = list(range(len(importance)))
    random.Random(seed).shuffle(order)
    schedule = allocation(importance).schedule()
    assert allocation([importance[role] for role in order]).schedule() == schedule.permuted(order)


@given(importances, st.sampled_from([0.125, 0.5, 2.0, 8.0]))
def test_only_the_ratios_of_effects_decide(importance: list[Importance], unit: float) -> None:
    scaled = [Importance(unit * each.value, unit * each.low, unit * each.high) for each in importance]
    assert allocation(scaled, min_effect=unit * MIN_EFFECT).parts == allocation(importance).parts


@given(effects, st.floats(0.001, 1))
def test_an_effect_is_detected_and_excluded_where_a_diagnosis_says_so(each: Importance, margin: float) -> None:
    effect = SampleEstimate(value=each.value, low=each.low, high=each.high, error=1.0, freedom=10)
    decision = conclude(effect, margin)
    assert each.detected(margin) == (decision == "matters")
    assert each.is_excluded(margin) == (decision == "no_effect" or each.high <= 0)


def test_a_large_effect_that_is_not_resolved_trains_and_is_not_called_none() -> None:
    """Only a layer shown to have no effect above 0.01 nats can do without training."""
    found = allocation([STRONG, WEAK, LARGE, INCONCLUSIVE, NOTHING, HARMFUL])
    assert found.shares == pytest.approx((1, 0.5, 1, 0, 0, 0))
    assert found.parts == (4, 2, 4, 1, 0, 0)
    told = explain_allocation(found).splitlines()
    assert "+1.2500 [-0.2800, +2.7900]" in told[3]
    assert [line.partition("]")[2].split(maxsplit=1) for line in told[1:7]] == [
        ["1.000", "in the last 4/4 of the steps"],
        ["0.500", "in the last 2/4 of the steps"],
        ["1.000", "in the last 4/4 of the steps (effect inconclusive)"],
        ["0.000", "in the last 1/4 of the steps (effect inconclusive)"],
        ["0.000", "never: its effect is at most 0.01 nats"],
        ["0.000", "never: its effect is at most 0.01 nats"],
    ]
    # Layers 0 and 2 learn throughout, 1 in half the steps, 3 in a quarter, and all six pass gradients on.
    assert told[-1].startswith("budget: 0.458 of all layer-steps; 0.819 of the FLOPs")


@pytest.mark.parametrize(
    ("importance", "terms", "message"),
    [
        ([], {}, "importance must not be empty"),
        ([INCONCLUSIVE, HARMFUL], {}, "no layer has a detectable effect above 0.01 nats/token (largest: layer"),
        ([WEAK], {"min_effect": 0.2}, "no layer has a detectable effect above 0.2 nats/token (largest: layer"),
    ],
)
def test_invalid_allocations_are_refused(importance: list[Importance], terms: dict[str, float], message: str) -> None:
    with pytest.raises(PlanError, match=re.escape(message)):
        allocation(importance, **terms)  # type: ignore[arg-type]


@pytest.mark.parametrize("bounds", [(0.1, 0.3, 0.2), (float("nan"), 0.0, 1.0), (0.0, 0.0, float("inf"))])
def test_importance_is_a_number_in_an_interval(bounds: tuple[float, float, float]) -> None:
    with pytest.raises(PlanError, match="importance must be finite, with low <= high"):
        Importance(*bounds)
