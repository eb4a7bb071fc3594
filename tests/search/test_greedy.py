"""Edits of plans, the greedy and evolutionary search over them, and repeats that held-out text confirms."""

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from zlib import crc32

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from layerwise.errors import MeasureError, OptionError
from layerwise.measure.stats.statistics import Numbers
from layerwise.plan import Plan
from layerwise.results.rows import Loss
from layerwise.results.vocabulary import DELTA
from layerwise.search.confirm import compute_loss_changes
from layerwise.search.evaluator import GraphEvaluator
from layerwise.search.evolve import evolve
from layerwise.search.greedy import Space, exchange_layers, greedy, rank_plans
from layerwise.search.moves import MOVES, check_moves, list_cheaper, list_neighbors, restore_layers, unroll
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
    with pytest.raises(MeasureError, match=r"cannot make the plan .* cheaper"):
        list(greedy(objective, Space(4, ("drop",), layers, 0.5), settings=RungSettings()))

    assert check_moves(("halves", "drop")) == ("drop", "halves")
    with pytest.raises(OptionError, match="unknown move 'dropp'; did you mean drop"):
        check_moves(("dropp",))
    with pytest.raises(OptionError, match="moves must not be empty"):
        check_moves(())


LAYERS = 6


@st.composite
def reached(draw: st.DrawFn) -> Plan:
    plan = Plan.identity(LAYERS)
    for _ in range(draw(st.integers(0, 4))):
        nearby = [*list_cheaper(plan, MOVES), *list_neighbors(plan, MOVES, LAYERS)]
        plan = draw(st.sampled_from([each for each in nearby if len(each.steps()) < 12]))
    return plan


@given(reached())
def test_every_edit_returns_a_different_valid_plan(plan: Plan) -> None:
    for each in {*list_cheaper(plan, MOVES), *list_neighbors(plan, MOVES, LAYERS)}:
        each.check(LAYERS)
        assert each != plan
        assert Plan.parse(str(each)) == each or str(Plan.parse(str(each))) == str(each)


@given(reached())
def test_unrolled_stages_run_the_same_steps(plan: Plan) -> None:
    assert Plan(unroll(plan)).steps() == plan.steps()


def test_each_edit_returns_the_expected_plans() -> None:
    plan = Plan.parse("0-2")
    texts = {
        move: [str(each) for each in [*list_cheaper(plan, [move]), *list_neighbors(plan, [move], 3)]] for move in MOVES
    }
    assert texts["drop"] == ["1 2", "0 2", "0 1"]
    assert texts["halves"][:2] == ["0.mlp 1 2", "0.attn 1 2"]
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
    back = {str(Plan(each)) for each in restore_layers(unroll(Plan.parse("0 3.mlp 4")), 5, halves=True)}
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
