"""Edits of plans, the searches over them, quantization within a byte budget, and repeats that text confirms."""

import copy
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import Any
from zlib import crc32

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from layerwise.errors import MeasureError, OptionError
from layerwise.measure.stats.statistics import Numbers
from layerwise.plan import Plan
from layerwise.plan.plan import Visit
from layerwise.results.rows import Loss, Score
from layerwise.results.vocabulary import DELTA
from layerwise.search.bits import (
    MAX_EXCHANGES,
    Allocations,
    Choice,
    allocate,
    apply_choice,
    assign_by_rank,
    build_rule_plans,
    draw_random_allocations,
    list_choices,
)
from layerwise.search.confirm import compute_loss_changes
from layerwise.search.edits import EDITS, Edit, check_edits, list_cheaper, list_neighbors, restore_layers, unroll
from layerwise.search.evaluator import GraphEvaluator
from layerwise.search.evolve import evolve
from layerwise.search.greedy import Space, exchange_layers, greedy, rank_plans
from layerwise.search.rungs import Evaluator, RungSettings, mean_losses, split_rungs
from layerwise.stack import Stack
from search.planted_objective import PlantedObjective
from search.planted_stack import planted_search
from tier import TIER, by_tier, first_fast


def layers(plan: Plan) -> float:
    return float(len(plan.steps()))


def dropped(plan: Plan, depth: int) -> list[int]:
    return sorted(set(range(depth)) - plan.layers())


def best_of(evaluator: Evaluator, space: Space, **options: int) -> Plan:
    return next(iter(rank_plans(greedy(evaluator, space, **options), space)))


def space(depth: int, limit: float) -> Space:
    return Space(depth, ("drop",), layers, limit)


def test_idle_and_harmful_layers_are_skipped() -> None:
    stack, text = planted_search([1, 4], [5], depth=7, windows=48)
    evaluator = GraphEvaluator(stack, split_rungs(text, 0))
    assert dropped(best_of(evaluator, space(7, 4), width=2), 7) == [1, 4, 5]


@pytest.mark.simulated
def test_coupled_layers_reach_the_exhaustive_optimum() -> None:
    seeds = by_tier(fast=3, nightly=20)
    right = 0
    for seed in range(seeds):
        objective = PlantedObjective(16, coupling=0.3, seed=seed, documents=16)
        best = best_of(objective, space(16, 12))
        right += abs(objective.true(best) - objective.optimum(4)) < 1e-9
    assert right >= seeds - 1


@pytest.mark.parametrize("search", first_fast([greedy, evolve]))
def test_two_models_provide_the_layers_that_are_damaged_in_the_other(search: Callable[..., Any]) -> None:
    first, text = planted_search([], [1], depth=4, windows=48)
    second, _ = planted_search([1], [2], depth=4, windows=1)
    able = copy.copy(first)
    able.sources = Stack.with_sources({"a": first, "b": second}).sources
    own = Space(4, ("drop",), layers, 4, ("b",))
    best = next(iter(rank_plans(search(GraphEvaluator(able, split_rungs(text, 0)), own), own)))
    sources = {step.layer: step.source for step in best.steps()}
    assert (len(sources), sources[1], sources[2]) == (4, "b", None)


def test_only_survivors_are_evaluated_on_the_next_rung() -> None:
    objective = PlantedObjective(12, coupling=0.3, seed=0, documents=64)
    list(greedy(objective, space(12, 9)))
    by_rung = [len({plan for plan, at in objective.evaluated if at == rung}) for rung in range(3)]
    assert by_rung[0] > 2 * by_rung[1] >= 2 * by_rung[2]


def test_limits_and_moves_that_cannot_be_are_refused() -> None:
    objective = PlantedObjective(4, coupling=0.3, seed=0, documents=16)
    with pytest.raises(MeasureError, match=r"the cost of the plan .* cannot make cheaper"):
        list(greedy(objective, Space(4, ("drop",), layers, 0.5), settings=RungSettings()))

    assert check_edits(("sublayers", "drop")) == ("drop", "sublayers")
    with pytest.raises(OptionError, match="unknown edit 'dropp'; did you mean drop"):
        check_edits(("dropp",))
    with pytest.raises(OptionError, match="edits must not be empty"):
        check_edits(())


LAYERS = 6


@st.composite
def reached(draw: st.DrawFn) -> Plan:
    plan = Plan.identity(LAYERS)
    for _ in range(draw(st.integers(0, 4))):
        nearby = [*list_cheaper(plan, EDITS), *list_neighbors(plan, EDITS, LAYERS)]
        plan = draw(st.sampled_from([each for each in nearby if len(each.steps()) < 12]))
    return plan


@given(reached())
def test_every_edit_returns_a_different_valid_plan(plan: Plan) -> None:
    for each in {*list_cheaper(plan, EDITS), *list_neighbors(plan, EDITS, LAYERS)}:
        each.check(LAYERS)
        assert each != plan
        assert Plan.parse(str(each)) == each or str(Plan.parse(str(each))) == str(each)


@given(reached())
def test_unrolled_stages_run_the_same_steps(plan: Plan) -> None:
    assert Plan(unroll(plan)).steps() == plan.steps()


def test_each_edit_returns_the_expected_plans() -> None:
    plan = Plan.parse("0-2")
    texts = {
        edit: [str(each) for each in [*list_cheaper(plan, [edit]), *list_neighbors(plan, [edit], 3)]] for edit in EDITS
    }
    assert texts["drop"] == ["1 2", "0 2", "0 1"]
    assert texts["sublayers"][:2] == ["0.mlp 1 2", "0.attn 1 2"]
    assert "0 1 1 2" in texts["repeat"]
    assert "0-2 0-2" in texts["repeat"]
    assert texts["damp"][:2] == ["(0):gain=0.25*2 1 2", "(0):gain=0.5*2 1 2"]
    assert texts["damp"][-1] == "(0-2):gain=0.5*2"
    assert texts["parallel"] == ["(0|1):sum 2", "0 (1|2):sum"]
    assert texts["reorder"] == ["1 0 2", "0 2 1"]


def test_repeated_runs_have_at_most_the_maximum_length() -> None:
    twice = list_neighbors(Plan.identity(LAYERS), ("repeat",), LAYERS, max_repeat=LAYERS)
    assert len(twice) == LAYERS * (LAYERS + 1) // 2
    assert (
        len(list_neighbors(Plan.identity(LAYERS), ("repeat",), LAYERS)) == len(twice) - 3
    )  # two of 5 layers, one of 6
    assert len(list_neighbors(Plan.identity(LAYERS), ("damp",), LAYERS, max_repeat=LAYERS)) == 2 * len(twice)


def test_layers_are_exchanged_between_models() -> None:
    plan = Plan.parse("0 b:1 Q4_0:2")
    around = {str(each) for each in list_neighbors(plan, (), 4, ("b", "c"))}
    assert around == {"b:0 b:1 Q4_0:2", "c:0 b:1 Q4_0:2", "0 1 Q4_0:2", "0 c:1 Q4_0:2"}


def test_a_skipped_layer_is_restored_at_its_place() -> None:
    back = {str(Plan(each)) for each in restore_layers(unroll(Plan.parse("0 3.mlp 4")), 5, sublayers=True)}
    assert back == {
        "0 1 3.mlp 4",
        "0 1.attn 3.mlp 4",
        "0 1.mlp 3.mlp 4",
        "0 2 3.mlp 4",
        "0 2.attn 3.mlp 4",
        "0 2.mlp 3.mlp 4",
        "0 3 4",
    }


DEPTH, DOCUMENTS = 12, 64
WHOLE = Plan.identity(DEPTH)
HELPS = Plan.parse("0-5 (6 7):gain=0.5*2 8-11")
SPACE = Space(DEPTH, ("repeat", "damp"), lambda plan: float(len(plan.steps())), 2 * DEPTH, max_repeat=DEPTH)
SEEDS = 100 if TIER == "nightly" else 40
NOISE = 0.05
"""Standard deviation over documents in nats."""


class Repeats:
    def __init__(self, costs: Callable[[Plan], float], seed: int, text: int, rungs: Sequence[int]) -> None:
        self.costs, self.seed, self.text = costs, seed, text
        self.parts = np.split(np.arange(DOCUMENTS), rungs)
        self.read: dict[int, set[Plan]] = {}

    @property
    def tokens(self) -> Sequence[Numbers]:
        return [np.full(part.size, 100.0) for part in self.parts]

    def losses(self, plan: Plan) -> Numbers:
        own = np.random.default_rng((self.seed, self.text, crc32(str(plan).encode())))
        noise = np.zeros(DOCUMENTS) if plan == WHOLE else NOISE * own.normal(size=DOCUMENTS)
        return np.asarray(100 * (3 + noise + (0.0 if plan == WHOLE else self.costs(plan))))

    def evaluate(self, plans: Sequence[Plan], rung: int, parent: Plan) -> Numbers:
        self.read.setdefault(rung, set()).update(plans)
        return np.array([self.losses(plan)[self.parts[rung]] for plan in plans])


def scanned(costs: Callable[[Plan], float], seed: int) -> tuple[Plan, Repeats]:
    searched = Repeats(costs, seed, 0, [8, 20])
    best = list(rank_plans(exchange_layers(searched, SPACE, (WHOLE,), width=1), SPACE))
    change = next((plan for plan in best if plan != WHOLE), WHOLE)
    select = Repeats(costs, seed, 1, [])
    losses = mean_losses(select, [WHOLE, change], WHOLE)
    return min(losses, key=lambda plan: losses[plan]), searched


def gains(costs: Callable[[Plan], float], seed: int) -> Mapping[Plan, float]:
    chosen, _ = scanned(costs, seed)
    if chosen == WHOLE:
        return {}
    fresh = Repeats(costs, seed, 2, [])
    rows = [
        Loss(str(plan), "text", f"d{number}", 0, float(nll), 100, 0)
        for plan in (WHOLE, chosen)
        for number, nll in enumerate(fresh.losses(plan))
    ]
    (row,) = (row for row in compute_loss_changes(rows, WHOLE, "report", seed=seed) if row.metric == DELTA)
    return {chosen: row.high} if row.high < 0 else {}


@pytest.mark.parametrize(
    "costs", first_fast([lambda plan: 0.002 * (crc32(str(plan).encode()) % 100), lambda plan: 0.0])
)
def test_a_scan_without_a_helpful_repeat_finds_one_in_at_most_5_of_100(costs: Callable[[Plan], float]) -> None:
    assert sum(bool(gains(costs, seed)) for seed in range(SEEDS)) <= 0.05 * SEEDS


def test_a_scan_finds_a_helpful_repeat_and_eliminates_others_early() -> None:
    def costs(plan: Plan) -> float:
        return -2.9 * NOISE / DOCUMENTS**0.5 if plan == HELPS else 0.1

    assert sum(HELPS in gains(costs, seed) for seed in range(SEEDS)) >= 0.75 * SEEDS

    _, searched = scanned(lambda plan: 0.1, 0)
    assert len(searched.read[0]) == 1 + 3 * DEPTH * (DEPTH + 1) // 2
    assert WHOLE in searched.read[2]
    assert len(searched.read[2]) <= 4


BITS = {None: 32.0, "Q4_0": 4.5, "Q4_1": 5.0, "Q5_0": 5.5, "Q5_1": 6.0, "Q8_0": 8.5}


def total_bytes(plan: Plan) -> float:
    return 100 + sum(BITS[source] for _, source in {(step.layer, step.source) for step in plan.steps()})


def bits_space(depth: int, bits: float, edits: tuple[Edit, ...] = ("bits",)) -> Space:
    return Space(depth, edits, total_bytes, 100 + depth * bits)


def every(depth: int) -> list[Plan]:
    return [Plan(each) for each in product(*([Visit(layer, source=name) for name in BITS] for layer in range(depth)))]


@st.composite
def allocations(draw: st.DrawFn) -> Allocations:
    depth = draw(st.integers(2, 3))
    edits: tuple[Edit, ...] = draw(st.sampled_from([("bits",), ("drop", "bits")]))
    own = bits_space(depth, draw(st.sampled_from([4.5, 5.0, 6.5, 9.0, 17.0, 31.0])), edits)
    rises: dict[tuple[int, Choice], float] = {}
    for layer in range(depth):
        for choice in list_choices(own, layer):
            rises[layer, choice] = 0.0 if choice == Visit(layer) else draw(st.floats(-0.1, 1.0))
    return Allocations(own, rises)


def predicted(found: Allocations, plan: Plan) -> float:
    own = {step.layer: Visit(step.layer, source=step.source) for step in plan.steps()}
    return sum(found.rises[layer, own.get(layer)] for layer in range(found.space.depth))


@given(allocations())
def test_an_allocation_fits_and_no_single_change_improves_it(found: Allocations) -> None:
    plan = found.find_best()
    assert found.space.allows(plan)
    assert len(plan.steps()) >= 1
    for layer, choice in found.rises:
        now = apply_choice(unroll(plan), layer, choice)
        if now and found.space.allows(changed := Plan(now)):
            assert predicted(found, changed) >= predicted(found, plan) - 1e-9


@given(allocations())
@settings(max_examples=30)
def test_an_allocation_is_within_one_change_of_the_optimum(found: Allocations) -> None:
    options = [list_choices(found.space, layer) for layer in range(found.space.depth)]
    plans = (Plan(tuple(each for each in own if each is not None)) for own in product(*options) if any(own))
    best = min(predicted(found, plan) for plan in plans if found.space.allows(plan))
    largest = max(found.rises.values()) - min(found.rises.values())
    assert predicted(found, found.find_best()) <= best + largest + 1e-9


@pytest.mark.parametrize(
    ("bits", "best"),
    [
        ((4.5 + 32) / 2, "Q4_0:0 1"),  # 1.0 nats for 27.5 bits is cheaper than 0.9 nats for 23.5
        ((4.5 + 8.5) / 2, "Q4_0:0 Q8_0:1"),  # the bits that remain go to the layer that loses most
    ],
)
def test_loss_increases_are_weighted_by_the_bytes_they_save(bits: float, best: str) -> None:
    losses = {(0, "Q4_0"): 1.0, (0, "Q8_0"): 0.97, (1, "Q4_0"): 2.0, (1, "Q8_0"): 0.9 if best.endswith(" 1") else 1.9}
    rises: dict[tuple[int, Choice], float] = {(layer, Visit(layer)): 0.0 for layer in range(2)}
    rises |= {(layer, Visit(layer, source=source)): loss for (layer, source), loss in losses.items()}
    assert str(Allocations(bits_space(2, bits), rises).find_best()) == best


@given(allocations())
def test_exchanges_fit_and_change_at_most_two_layers(found: Allocations) -> None:
    plan = found.find_best()
    around = found.propose_exchanges(plan)
    assert len(around) == len(set(around)) <= MAX_EXCHANGES
    own = {step.layer: step.source for step in plan.steps()}
    for each in around:
        other = {step.layer: step.source for step in each.steps()}
        assert found.space.allows(each)
        assert each != plan
        changed = [
            layer
            for layer in range(found.space.depth)
            if (layer in own, own.get(layer)) != (layer in other, other.get(layer))
        ]
        assert 1 <= len(changed) <= 2


def test_exchanges_start_with_the_most_promising_one() -> None:
    own = bits_space(3, 8.5)
    rises: dict[tuple[int, Choice], float] = {
        (layer, choice): 0.0 if choice == Visit(layer) else (layer + 1) / BITS[choice.source]  # type: ignore[union-attr]
        for layer in range(3)
        for choice in list_choices(own, layer)
    }
    first = Allocations(own, rises).propose_exchanges(Plan.parse("Q8_0:0 Q5_0:1 Q5_0:2"))[0]
    assert str(first) == "Q8_0:0 Q5_0:1 Q8_0:2"  # the most sensitive layer gains bits, and no other loses any


def test_a_fragile_layer_keeps_its_bits_and_an_idle_layer_loses_them() -> None:
    objective = PlantedObjective(6, coupling=0.0, seed=1)
    objective.single[:] = [0.1, 0.1, 5.0, 0.1, 0.0, 0.1]
    own = bits_space(6, 6.0)
    best = next(iter(rank_plans(allocate(objective, own, build_rule_plans(own, ())), own)))
    bits = {step.layer: BITS[step.source] for step in best.steps()}
    assert bits[2] == max(bits.values()) > 6.0
    assert bits[4] == 4.5
    assert total_bytes(best) <= 136.0


def test_the_result_is_never_worse_than_a_rule_on_the_search_text() -> None:
    for seed in range(by_tier(fast=3, nightly=30)):
        objective = PlantedObjective(8, coupling=0.8, noise=0.3, seed=seed, documents=32)
        own = bits_space(8, 7.0, ("bits", "drop") if seed % 2 else ("bits",))
        rules = build_rule_plans(own, ())
        losses = rank_plans(allocate(objective, own, rules, settings=RungSettings(last=64)), own)
        totals = {plan: float(objective.losses(plan).sum()) for plan in [next(iter(losses)), *rules.values()]}
        assert next(iter(totals)) == min(totals, key=lambda plan: totals[plan])


@pytest.mark.parametrize(
    ("bits", "expected"),
    [(4.4, None), (4.5, "Q4_0:0-4"), (5.2, "Q4_1:0-4"), (8.5, "Q8_0:0-4"), (31.9, "Q8_0:0-4"), (32.0, "0-4")],
)
def test_the_uniform_type_has_the_most_bits_that_fit(bits: float, expected: str | None) -> None:
    plan = assign_by_rank(bits_space(5, bits), ())
    assert (None if plan is None else str(plan)) == expected


def test_the_first_layers_of_an_order_get_more_bits_than_the_others() -> None:
    order = [4, 0, 1, 2, 3]
    # The budget fits Q5_1 everywhere: above it is Q8_0, below it Q5_0, and the remainder is Q5_1.
    texts = {bits: str(assign_by_rank(bits_space(5, bits), order)) for bits in (6.0, 6.1, 6.2, 6.7, 8.4)}
    assert texts[6.0] == "Q5_1:0-4"  # one layer more at Q8_0 takes 30.5 of 30
    assert texts[6.1] == "Q5_0:0-3 Q8_0:4"
    assert texts[6.2] == "Q5_1:0 Q5_0:1-3 Q8_0:4"
    assert texts[6.7] == "Q8_0:0 Q5_0:1-3 Q8_0:4"
    assert texts[8.4] == "Q8_0:0-2 Q5_1:3 Q8_0:4"


def test_rules_and_random_allocations_fit_and_differ() -> None:
    own = bits_space(12, 7.0)
    influence = [Score("proxies", "block_influence", 0.1 * layer, layer=layer) for layer in range(12)]
    rules = build_rule_plans(own, influence)
    assert list(rules) == ["uniform", "first_and_last", "block_influence"]
    ends = {step.layer for step in rules["first_and_last"].steps() if step.source == "Q8_0"}
    assert ends == {0, 1, 2, 9, 10, 11}
    assert {step.source for step in rules["first_and_last"].steps()} == {"Q8_0", "Q5_0"}
    most = {step.layer for step in rules["block_influence"].steps() if step.source == "Q8_0"}
    assert most == {6, 7, 8, 9, 10, 11}
    by_power = build_rule_plans(own, influence, {layer: -float(layer) for layer in range(12)})["imatrix"]
    assert {step.layer for step in by_power.steps() if step.source == "Q8_0"} == {0, 1, 2, 3, 4, 5}
    draws = draw_random_allocations(own, 20, 0)
    assert len(set(draws)) == 20
    assert draws == draw_random_allocations(own, 20, 0) != draw_random_allocations(own, 20, 1)
    assert all(own.allows(plan) for plan in [*rules.values(), *draws])


def test_a_budget_below_the_fewest_bits_requires_skipped_layers() -> None:
    objective = PlantedObjective(4, coupling=0.0, seed=0)
    with pytest.raises(MeasureError, match="at least 118 bytes, the size with every layer in its smallest type"):
        list(allocate(objective, bits_space(4, 4.0), {}))
    own = bits_space(4, 4.0, ("drop", "bits"))
    best = next(iter(rank_plans(allocate(objective, own, {}), own)))
    assert len(best.steps()) == 3
    assert own.allows(best)


@pytest.mark.simulated
@pytest.mark.nightly
def test_the_prediction_interval_covers_another_text_in_90_of_100_searches() -> None:
    held, whole = 0, Plan.identity(8)
    for seed in range(100):
        searched, reported, fresh = (
            PlantedObjective(8, coupling=0.3, noise=1.0, seed=seed, documents=48, text=text) for text in range(3)
        )
        own = bits_space(8, 5.5)
        plan = next(iter(rank_plans(allocate(searched, own, build_rule_plans(own, ()), width=2), own)))

        def rows(objective: PlantedObjective, plan: Plan = plan) -> list[Loss]:
            return [
                Loss(str(each), "text", f"d{number}", 0, float(nll), 100, 0)
                for each in (whole, plan)
                for number, nll in enumerate(objective.losses(each))
            ]

        again = next(
            row for row in compute_loss_changes(rows(reported), whole, "report", seed=seed) if row.metric == "again"
        )
        other = next(
            row for row in compute_loss_changes(rows(fresh), whole, "fresh", seed=seed) if row.metric == "delta_nll"
        )
        held += (again.low or 0.0) <= other.value <= (again.high or 0.0)
    assert held >= 90
