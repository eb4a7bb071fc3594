import copy
from itertools import pairwise
from typing import Any

import pytest
import torch

from layerwise.measure.interventions.intervention import ResultCache
from layerwise.measure.interventions.predicted_weight_loss import (
    joint_sets,
    neighbor_sets,
    predicted_weight_loss,
    random_error,
    set_columns,
)
from layerwise.measure.language.evaluation_data import EvalData
from layerwise.measure.weights.predictability import predict_layer
from layerwise.results.rows import Loss, Score
from layerwise.results.selection import Rows
from layerwise.stack import Stack

DEPTH = 6


@pytest.fixture(scope="module")
def scores(stack: Stack, reading: EvalData) -> list[Score]:
    return predicted_weight_loss(stack, reading)


def value(scores: list[Score], against: str | None = None, **columns: Any) -> float:
    (found,) = Rows(scores).where(metric="predicted_weight_loss", against=against, **columns)
    return found.value


def test_random_layers_cost_more_jointly(scores: list[Score]) -> None:
    for layer in range(1, 5):
        assert value(scores, layer=layer) > 0
        assert value(scores, "same_norm_random", layer=layer) > 0
        assert value(scores, "no_effect", layer=layer) == 0
    assert value(scores, condition="set", affected=2) > max(value(scores, layer=layer) for layer in (1, 4)) / 2
    assert {s.measure for s in scores} == {"predictability"}


def test_random_error_has_the_norm_of_the_prediction_error() -> None:
    own = {"w": torch.randn(20, 30), "v": torch.randn(5, 5)}
    predicted = {name: 0.5 * value for name, value in own.items()}
    found = random_error(predicted, own, seed=1)
    for name in own:
        assert (found[name] - own[name]).norm() == pytest.approx(float((predicted[name] - own[name]).norm()), rel=1e-5)
        assert not torch.allclose(found[name], predicted[name])
    assert torch.equal(found["w"], random_error(predicted, own, seed=1)["w"])
    assert not torch.equal(found["w"], random_error(predicted, own, seed=2)["w"])


def test_sets_are_separated_inner_layers() -> None:
    for depth in range(4, 60):
        for subject, layers in joint_sets(depth).items():
            assert len(set(layers)) == int(subject.removeprefix("set:")), (depth, subject)
            assert set(layers) <= set(range(1, depth - 1)), (depth, subject)
            if depth > 4:
                assert min(b - a for a, b in pairwise(layers)) >= 2, (depth, subject)


def test_sets_are_replaced_jointly(stack: Stack, reading: EvalData) -> None:
    rows: list[Loss] = []
    predicted_weight_loss(stack, reading, cache=ResultCache(sink=rows.extend))
    found = sum(row.nll for row in rows if row.plan == "set:2=predicted")
    changed = copy.deepcopy(stack.model)
    for layer in (1, 4):
        changed.get_submodule(f"{stack.path}.{layer}").load_state_dict(predict_layer(stack, layer), strict=False)
    expected = 0.0
    with torch.no_grad():
        for batch in reading.batches:
            logits = changed(**batch.inputs, use_cache=False).logits.log_softmax(-1)
            for row, window in enumerate(batch.windows):
                ids = torch.tensor(window.ids)
                said = logits[row, : len(ids) - 1].gather(1, ids[1:, None])
                expected -= float(said[window.scored_from - 1 : window.scored_until - 1].sum())
    assert found == pytest.approx(expected, rel=1e-4)


def test_neighbor_sets_have_costs(scores: list[Score]) -> None:
    for name, layers in neighbor_sets(DEPTH).items():
        assert value(scores, **set_columns(name, layers)) > 0
        assert value(scores, "same_norm_random", **set_columns(name, layers)) > 0
