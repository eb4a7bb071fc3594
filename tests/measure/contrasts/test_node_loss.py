"""Node failures: the survey, and the loss in models where one known layer matters."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from layerwise.measure.contrasts.trainings import average_trainings
from layerwise.measure.interventions.accuracy import evaluate
from layerwise.measure.interventions.survey import Condition, EvaluationGrid, NodeLoss, conditions, survey
from layerwise.plan import Plan
from layerwise.plan.samplers import LAYOUTS, node_layout
from layerwise.results.rows import Score
from layerwise.studies.robustness.node_loss import node_loss_rows
from measure.planted_classifiers import Idle, Reader, classifier, splits, turning

SPLITS = splits(64)
GRID = EvaluationGrid(orders=1, draws=8, kept=(2, 3, 4), rules=("random",), nodes=(3,))
BATCH = GRID.batch_size(64)


@given(depth=st.integers(2, 12), nodes=st.lists(st.integers(2, 14), max_size=3))
def test_all_nodes_and_sets_of_every_size_fail(depth: int, nodes: list[int]) -> None:
    grid = EvaluationGrid(layers=False, kept=(), nodes=tuple(nodes))
    names = [condition.name for condition in conditions(depth, grid) if condition.nodes is not None]
    assert len(names) == len(set(names))
    for count in {count for count in nodes if count < depth}:
        for layout in LAYOUTS:
            expected = {f"nodes {count} {layout} without {node} sequential" for node in range(count)}
            expected |= {f"nodes {count} {layout} any {several} sequential" for several in range(2, count)}
            assert expected <= set(names)
    assert not [name for name in names if int(name.split()[1]) >= depth]


@given(seed=st.integers(0, 99), batch=st.integers(0, 9), layout=st.sampled_from(LAYOUTS), several=st.integers(2, 3))
def test_remaining_layers_run_in_random_orders(seed: int, batch: int, layout: str, several: int) -> None:
    whole = Condition(12, None, False).plan(12, seed, batch).order()
    for lost in (NodeLoss(4, layout, node=1), NodeLoss(4, layout, several=several)):
        gone = lost.layers(12, seed, batch)
        assert len(gone) == lost.max_layers(12) == 3 * (1 if lost.node is not None else several)
        nodes = [set(node) for node in node_layout(12, 4, layout)]
        assert all(node <= set(gone) or not node & set(gone) for node in nodes)
        left = Condition(12, None, False, nodes=lost).plan(12, seed, batch).order()
        assert left == tuple(layer for layer in whole if layer not in gone)
        in_order = Condition(12, None, True, nodes=lost).plan(12, seed, batch).order()
        assert in_order == tuple(sorted(left))


def test_remaining_layers_in_order_are_listed_separately() -> None:
    stack = turning(6)
    result = survey(
        stack, SPLITS.test, SPLITS.collate, EvaluationGrid(orders=1, draws=32, kept=(), layers=False, nodes=(3,))
    )
    share = result.identical["nodes 3 blocks any 2 random"]
    assert 4 < share.identical < 28
    assert result.outcomes["nodes 3 blocks any 2 random"].scored.sum() == 64 - 2 * share.identical


def rows_of(scores: list[Score], metric: str, against: str | None = None) -> dict[tuple[object, ...], Score]:
    own = (row for row in scores if (row.metric, row.against) == (metric, against))
    return {(row.nodes, row.layout, row.failed, row.order): row for row in own}


def test_losing_the_node_of_the_only_important_layer_costs_everything() -> None:
    layers = [Idle(), Idle(), Idle(), Reader(), Idle(), Idle()]
    stack = classifier(layers)
    result = survey(stack, SPLITS.test, SPLITS.collate, GRID)
    scores = node_loss_rows({"reader": {0: result}}, BATCH)
    whole = result.outcomes["sequential"].accuracy
    without = evaluate(stack, Plan.parse("0-2 4 5"), SPLITS.test, SPLITS.collate).accuracy
    lost = rows_of(scores, "accuracy_lost")
    for layout in LAYOUTS:
        # One of the three nodes has the reader.
        assert lost[3, layout, 1, "sequential"].value == pytest.approx((whole - without) / 3)
        assert lost[3, layout, 1, "random"].value == pytest.approx((whole - without) / 3)
        worst = rows_of(scores, "accuracy_lost_worst")[3, layout, 1, "sequential"]
        assert worst.value == pytest.approx(whole - without)
    # Idle layers cost nothing, so costs add up.
    above = rows_of(scores, "accuracy_lost_above", "single")
    assert above[3, "blocks", 1, "sequential"].value == pytest.approx(0.0, abs=1e-12)
    assert rows_of(scores, "accuracy_lost", "single")[3, "blocks", 2, "sequential"].value == pytest.approx(
        2 * (whole - without) / 3
    )
    assert rows_of(scores, "accuracy_lost_above", "blocks")[3, "round-robin", 1, "random"].value == pytest.approx(
        0.0, abs=1e-12
    )


def test_random_losses_have_as_many_layers() -> None:
    result = survey(turning(6), SPLITS.test, SPLITS.collate, GRID)
    scores = node_loss_rows({"turning": {0: result}}, BATCH)
    under, whole = result.outcomes["kept 4 random sequential"], result.outcomes["sequential"]
    scattered = rows_of(scores, "nll_added", "scattered")[3, "blocks", 1, "sequential"]
    assert scattered.value == pytest.approx(under.mean_nll - whole.mean_nll)
    joint = rows_of(scores, "nll_added")[3, "blocks", 1, "sequential"]
    each = [result.outcomes[f"nodes 3 blocks without {node} sequential"].mean_nll for node in range(3)]
    assert joint.value == pytest.approx(np.mean(each) - whole.mean_nll)
    above = rows_of(scores, "nll_added_above", "scattered")[3, "blocks", 1, "sequential"]
    assert above.value == pytest.approx(joint.value - scattered.value)
    assert above.low < above.value < above.high


def test_uneven_nodes_have_no_random_comparison() -> None:
    grid = EvaluationGrid(orders=1, draws=8, kept=(3,), rules=("random",), nodes=(2,))
    result = survey(turning(5), SPLITS.test, SPLITS.collate, grid)
    scores = node_loss_rows({"turning": {0: result, 1: result}}, BATCH)
    assert rows_of(scores, "accuracy_lost")
    assert not rows_of(scores, "accuracy_lost", "scattered")
    assert (
        node_loss_rows({"none": {0: survey(turning(3), SPLITS.test, SPLITS.collate, EvaluationGrid(orders=1))}}, BATCH)
        == []
    )


def test_the_interval_of_a_difference_is_over_seeds_and_batches() -> None:
    surveys = {seed: survey(turning(6, seed), SPLITS.test, SPLITS.collate, GRID) for seed in range(2)}
    row = rows_of(node_loss_rows({"turning": surveys}, BATCH), "nll_added_above", "blocks")[
        3, "round-robin", 1, "sequential"
    ]
    torn, blocks = (
        np.array(
            [
                np.mean([of.outcomes[f"nodes 3 {layout} without {node} sequential"].nll for node in range(3)], axis=0)
                for of in surveys.values()
            ]
        )
        for layout in ("round-robin", "blocks")
    )
    each = torn - blocks
    influences = (each - each.mean(axis=1, keepdims=True)).reshape(2, -1, BATCH).sum(axis=2) / each.shape[1]
    expected = average_trainings(each.mean(axis=1), influences, 64)
    assert (row.value, row.low, row.high, row.documents) == pytest.approx(
        (expected.value, expected.value - expected.half, expected.value + expected.half, 64)
    )
