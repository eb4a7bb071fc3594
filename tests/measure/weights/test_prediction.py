"""The predicted weights of a layer: they come from its neighbours, and never from the rows they stand for."""

from __future__ import annotations

import pytest
import torch

from conftest import tiny_llama
from layerwise import load
from layerwise.errors import MeasureError
from layerwise.measure.weights.prediction import predict_layer
from layerwise.stack.weights import layer_weights
from measure.planted import autoregressive, noise, planted_stack


@pytest.mark.parametrize("layer", [0, 3, 5])
def test_every_matrix_has_a_prediction_as_it_is_stored(layer: int) -> None:
    stack = load(tiny_llama().bfloat16())
    own = layer_weights(stack, layer)
    predicted = predict_layer(stack, layer)
    assert set(predicted) == {name for name in own if own[name].ndim == 2}
    assert all(value.shape == own[name].shape and value.dtype == torch.bfloat16 for name, value in predicted.items())
    assert all(torch.equal(value, predict_layer(stack, layer)[name]) for name, value in predicted.items())


def test_kin_are_predicted_and_noise_is_not() -> None:
    kin, strangers = autoregressive(8, 300, 10, rho=0.99), noise(8, 300, 10)
    errors = []
    for weights in (kin, strangers):
        predicted = predict_layer(planted_stack({"w": weights}), 3)["w"]
        errors.append(float((predicted - weights[3]).norm() / weights[3].norm()))
    assert errors[0] < 0.2
    assert 0.99 < errors[1] < 1.1


def test_wide_matrices_come_back_the_right_way_round() -> None:
    kin = autoregressive(8, 200, 10, rho=0.99)
    stack = planted_stack({"up": kin, "down": kin.mT, "both": noise(8, 10, 10)})
    predicted = predict_layer(stack, 3)
    assert torch.allclose(predicted["up"], predicted["down"].T)


def test_a_row_is_predicted_without_having_been_seen() -> None:
    weights = autoregressive(5, 60, 6, rho=0.9)
    other = weights.clone()
    other[2, 17] += 0.5
    before, after = (predict_layer(planted_stack({"w": each}), 2)["w"] for each in (weights, other))
    assert torch.equal(before[17], after[17])
    assert not torch.equal(before, after)


def test_what_cannot_be_predicted_is_refused() -> None:
    stack = planted_stack({"w": noise(5, 12, 6)})
    with pytest.raises(MeasureError, match="prediction of layer 5 was asked for, but the model has layers 0 to 4"):
        predict_layer(stack, 5)
    broken = noise(5, 12, 6)
    broken[1, 0, 0] = torch.nan
    with pytest.raises(MeasureError, match="w of layer 1 holds values that are not finite"):
        predict_layer(planted_stack({"w": broken}), 2)
    with pytest.raises(MeasureError, match="at least 4 layers"):
        predict_layer(planted_stack({"w": noise(3, 12, 6)}), 1)
