from typing import Any

import pytest
import torch
from torch import Tensor

from conftest import tiny_llama
from layerwise import load
from layerwise.errors import MeasureError
from layerwise.measure.weights.predictability import (
    Triples,
    choose_penalties,
    held_out_layer_residuals,
    held_out_row_residuals,
    predict_layer,
    predictability,
)
from layerwise.measure.weights.tensors import (
    StackTensors,
    complement_rows,
    find_tensor_types,
    pool_complements,
    sample_units,
)
from layerwise.results.rows import Score
from layerwise.results.selection import Rows
from layerwise.stack.weights import layer_weights
from measure.planted import autoregressive, noise, planted_stack, stack_of_layers

HELD_OUT = ("heldout_rows_r2", "heldout_layers_r2")


def row(scores: list[Score], metric: str, against: str | None = None, **columns: Any) -> Score:
    about = {"layer": None, "part": None, **columns}
    (found,) = Rows(scores).where(metric=metric, against=against, **about)
    return found


def triples(weights: Tensor) -> Triples:
    tensors = StackTensors(planted_stack({"w": weights}))
    (kind,) = find_tensor_types(tensors, "predictability")
    return Triples(tensors, sample_units(kind, weights.shape[2], seed=0), tuple(range(len(weights))))


def test_independent_layers_do_not_predict_each_other() -> None:
    scores = predictability(planted_stack({"up": noise(20, 96, 32), "down": noise(20, 32, 96, 50)}))
    for metric in HELD_OUT:
        assert row(scores, metric).value <= 0
        # By chance, one layer of a few thousand entries may be off.
        assert all(row(scores, metric, layer=layer).value <= 0.02 for layer in range(1, 19))
    in_sample_r2 = row(scores, "in_sample_r2")
    assert in_sample_r2.value == pytest.approx(64 / 95, abs=0.03)
    assert row(scores, "in_sample_r2", against="p_over_n").value == pytest.approx(64 / 95)


def test_saturated_types_are_omitted_in_sample() -> None:
    """Their fit is exact for any weights: four such types of seven lift the mean from 0.75 to 0.89."""
    types = {"exact": noise(12, 61, 30), "wide": noise(12, 30, 30, 1), "tall": noise(12, 62, 30, 2)}
    scores = predictability(planted_stack(types))
    assert Rows(scores).where(metric="in_sample_r2", layer=None).axis("part") == ("tall",)
    assert row(scores, "in_sample_r2").value == row(scores, "in_sample_r2", part="tall").value
    assert row(scores, "in_sample_r2", against="p_over_n").value == 60 / 61
    assert set(Rows(scores).where(metric="heldout_rows_r2").axis("part")) == set(types)
    alone = predictability(planted_stack({"wide": noise(12, 30, 30)}))
    assert not Rows(alone).where(metric="in_sample_r2")
    assert row(alone, "heldout_rows_r2").value <= 0


def test_autoregressive_layers_are_predicted_optimally() -> None:
    rho = 0.9
    best = 2 * rho**2 / (1 + rho**2)
    scores = predictability(planted_stack({"w": autoregressive(24, 400, 30, rho)}))
    for metric in HELD_OUT:
        assert row(scores, metric).value == pytest.approx(best, abs=0.03)
        assert row(scores, metric, against="permuted_units").value < 0.02
        assert row(scores, metric, against="shuffled_layers").value < row(scores, metric).value - 0.3


def test_held_out_layer_is_in_no_fit() -> None:
    weights = autoregressive(14, 40, 8, rho=0.8)
    other = weights.clone()
    # Of three groups of four, layer 4 ends the first and neighbors the second; no triple of positions 1, 2 has it.
    other[4] *= 100
    shares = {1: 1.0, 6: 1.0, 12: 1.0}
    before, after = (held_out_layer_residuals(triples(each), shares) for each in (weights, other))
    assert after[1] == before[1]
    assert after[2] == before[2]
    assert after[4] != before[4]
    assert after[10] != before[10]


def test_held_out_rows_do_not_choose_the_penalty() -> None:
    weights = noise(6, 50, 4)
    kept = triples(weights)
    other = weights.clone()
    other[:, kept.sample.rows[40:]] = noise(6, 10, 4, seed=9)
    changed = triples(other)
    assert choose_penalties(kept) == choose_penalties(changed)
    before, after = (held_out_row_residuals(each, {1: 1.0}, [2]) for each in (kept, changed))
    assert before[2].errors != after[2].errors


def test_units_are_permuted_independently_by_layer() -> None:
    real = triples(noise(1, 30, 4).expand(6, 30, 4))
    permuted = Triples(real.tensors, real.sample, real.order, permuted=5)
    (_, x, y), (_, moved_x, moved_y) = next(real.iterate([2])), next(permuted.iterate([2]))
    assert torch.equal(x[:, :4], y)
    assert not torch.equal(moved_x[:, :4], moved_y)
    assert torch.equal(moved_y.sort(dim=0).values, y.sort(dim=0).values)


def test_streamed_reading_matches_loading_all_layers() -> None:
    every = triples(noise(8, 12, 4))
    for position, x, y in every.iterate(every.positions, rows=5):
        ((_, alone_x, alone_y),) = every.iterate([position], rows=5)
        assert torch.equal(x, alone_x)
        assert torch.equal(y, alone_y)
        assert x.shape == (5, 8)


def test_both_splits_have_nulls() -> None:
    metrics = {(s.metric, s.against) for s in predictability(load(tiny_llama(depth=8, seed=5)))}
    nulls = (None, "random_init", "permuted_units", "shuffled_layers")
    assert {(metric, null) for metric in HELD_OUT for null in nulls} <= metrics


def test_unequal_shapes_are_omitted_and_shallow_models_have_fewer_levels() -> None:
    layers = [{"even": noise(1, 12, 6, n)[0], "grows": noise(1, 4 + n, 6, n)[0]} for n in range(5)]
    scores = predictability(stack_of_layers(layers))
    assert {s.part for s in scores} == {"even", None}
    assert not any(s.metric.startswith("heldout_layers_r2") for s in scores)


def test_constant_matrices_have_no_rows() -> None:
    scores = predictability(planted_stack({"flat": torch.ones(6, 12, 6), "zero": torch.zeros(6, 12, 6)}))
    assert not any(s.metric.startswith(("heldout", "in_sample")) for s in scores if s.against is None)


@pytest.mark.parametrize("layer", [0, 3])
def test_predictions_have_the_stored_layout(layer: int) -> None:
    stack = load(tiny_llama().bfloat16())
    own = layer_weights(stack, layer)
    predicted = predict_layer(stack, layer)
    assert set(predicted) == {name for name in own if own[name].ndim == 2}
    assert all(value.shape == own[name].shape and value.dtype == torch.bfloat16 for name, value in predicted.items())
    assert all(torch.equal(value, predict_layer(stack, layer)[name]) for name, value in predicted.items())


def test_related_layers_are_predicted_and_noise_is_not() -> None:
    kin, strangers = autoregressive(8, 300, 10, rho=0.99), noise(8, 300, 10)
    errors = []
    for weights in (kin, strangers):
        predicted = predict_layer(planted_stack({"w": weights}), 3)["w"]
        errors.append(float((predicted - weights[3]).norm() / weights[3].norm()))
    assert errors[0] < 0.2
    assert 0.99 < errors[1] < 1.1


def test_predicted_rows_are_held_out() -> None:
    weights = autoregressive(5, 60, 6, rho=0.9)
    other = weights.clone()
    other[2, 17] += 0.5
    before, after = (predict_layer(planted_stack({"w": each}), 2)["w"] for each in (weights, other))
    assert torch.equal(before[17], after[17])
    assert not torch.equal(before, after)


def test_unpredictable_models_are_rejected() -> None:
    broken = noise(5, 12, 6)
    broken[1, 0, 0] = torch.nan
    with pytest.raises(MeasureError, match="w of layer 1 must be finite"):
        predict_layer(planted_stack({"w": broken}), 2)


def test_level_is_the_mean_of_its_types() -> None:
    fresh = pool_complements({"q": {0: (0.25, 1.0), 1: (0.75, 1.0)}})
    fractions = {"q": {0: (3.0, 4.0), 1: (1.0, 4.0)}, "v": {0: (1.0, 4.0)}, "k": {0: (0.0, 0.0)}}
    scores = complement_rows("predictability", "r2", fractions, {"random_init": fresh})
    rows = {(row.layer, row.part, row.against): row.value for row in scores}
    assert rows[0, "q", None] == 0.25
    assert rows[0, "v", None] == 0.75
    assert rows[0, None, None] == 0.5
    assert rows[None, "q", None] == 0.5
    assert rows[None, None, None] == 0.625
    assert rows[1, None, "random_init"] == rows[None, None, "random_init"] == 0.5
    assert not any(part == "k" for _, part, _ in rows)
