"""A lost node left out, or replaced by that of another model: the plans, and what planted models make of them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from layerwise.experiments.merging.comparison import NODES, node_replacement, replacements
from layerwise.plan import Plan, Visit
from layerwise.stack import Stack
from measure.planted_classifiers import Idle, Reader, classifier, splits

SPLITS = splits(32)


@given(
    depth=st.integers(2, 12),
    models=st.integers(2, 4),
    seed=st.integers(0, 9),
    order=st.sampled_from(["sequential", "random"]),
)
def test_every_node_of_every_model_is_lost_once(depth: int, models: int, seed: int, order: str) -> None:
    names = "abcd"[:models]
    plans = list(replacements(names, depth, order, seed))
    assert len(plans) == models * min(NODES, depth)
    lost_layers = []
    for number, (lost, replaced) in enumerate(plans):
        model, other = names[number // min(NODES, depth)], names[(number // min(NODES, depth) + 1) % models]
        kept, all_of_it = visits(lost), visits(replaced)
        assert sorted(layer for layer, _ in all_of_it) == list(range(depth))
        # The remaining layers run in the order that they have when the node is replaced.
        assert kept == [visit for visit in all_of_it if visit[1] == model]
        gone = [visit for visit in all_of_it if visit[1] == other]
        assert len(kept) + len(gone) == depth
        lost_layers += [(model, layer) for layer, _ in gone]
        assert order == "random" or [layer for layer, _ in all_of_it] == list(range(depth))
    assert sorted(lost_layers) == [(model, layer) for model in names for layer in range(depth)]


def visits(plan: Plan) -> list[tuple[int, str | None]]:
    return [(stage.layer, stage.source) for stage in plan.stages if isinstance(stage, Visit)]


def test_a_node_that_reads_is_worth_replacing() -> None:
    stacks = {name: classifier([Idle(), Reader(), Idle(), Idle()]) for name in "ab"}
    merged = Stack.with_sources(stacks)
    steps: list[None] = []
    rows = list(node_replacement("arm", merged, ("a", "b"), SPLITS, 0, lambda: steps.append(None)))
    found = {(row.part, row.condition, row.metric): row for row in rows}
    assert len(steps) == 2
    for order in ("sequential", "random"):
        whole = found["node replaced", order, "accuracy"].value
        assert whole == pytest.approx(1.0)
        lost = found["node lost", order, "accuracy"].value
        # One of the four nodes has the reader; without it the model guesses.
        assert 0.75 <= lost < 0.85
        gap = found["node replaced", order, "accuracy_above"]
        assert gap.value == pytest.approx(whole - lost)


def test_models_that_lose_alike_have_no_spread_however_much_their_nodes_differ() -> None:
    merged = Stack.with_sources({name: classifier([Idle(), Reader(), Idle(), Idle()]) for name in "ab"})
    found = {
        (row.part, row.condition, row.metric): row
        for row in node_replacement("arm", merged, ("a", "b"), SPLITS, 0, lambda: None)
    }
    lost = found["node lost", "sequential", "accuracy"]
    assert found["node lost", "sequential", "accuracy_spread"].value == 0
    assert lost.low < lost.value < lost.high
    gained = found["node replaced", "sequential", "accuracy_above"]
    assert 0 < gained.low < gained.value == pytest.approx(1 - lost.value)
