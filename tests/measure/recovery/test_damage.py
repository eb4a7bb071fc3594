"""Damage: noise of the published size, and a scale at which layers start equal."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from layerwise.errors import MeasureError
from layerwise.measure.recovery.damage import displaced, equal_scale, noise_direction

WEIGHTS = {
    "wide": 3.0 + 2.0 * torch.randn(200, 300, generator=torch.Generator().manual_seed(0)),
    "narrow": (0.1 * torch.randn(100, 100, generator=torch.Generator().manual_seed(1))).bfloat16(),
    "gain": torch.ones(7),
}


def test_noise_has_the_deviation_of_its_tensor() -> None:
    changed = displaced(WEIGHTS, noise_direction(WEIGHTS, (0, 3)), 0.5)
    for name in ("wide", "narrow"):
        change = changed[name].double() - WEIGHTS[name].double()
        assert float(change.std()) == pytest.approx(0.5 * float(WEIGHTS[name].double().std()), rel=0.02)
        assert abs(float(change.mean())) < 0.02 * float(change.std()) + 0.02
    assert torch.equal(changed["gain"], WEIGHTS["gain"]), "a tensor without spread gets no noise"


def test_no_scale_is_no_change_and_the_seed_is_the_noise() -> None:
    first, again, other = (noise_direction(WEIGHTS, seed) for seed in ((0, 1), (0, 1), (1, 1)))
    assert all(torch.equal(displaced(WEIGHTS, first, 0.0)[name], WEIGHTS[name].float()) for name in WEIGHTS)
    assert all(torch.equal(first[name], again[name]) for name in WEIGHTS)
    assert not torch.equal(first["wide"], other["wide"])


def test_weights_that_are_not_finite_are_refused() -> None:
    with pytest.raises(MeasureError, match="broken holds values that are not finite"):
        noise_direction({"broken": torch.tensor([[1.0, math.nan]])}, (0,))


@settings(deadline=None)
@given(st.floats(1e-3, 10.0), st.floats(0.5, 4.0), st.floats(0.01, 1.0))
def test_equal_scale_meets_its_target(steepness: float, power: float, target: float) -> None:
    def damage(scale: float) -> float:
        return math.inf if scale > 50 else steepness * scale**power

    scale = equal_scale(damage, target, 0.01 * target)
    exact = (target / steepness) ** (1 / power)
    if scale is None:
        assert not 2.0**-11 < exact < 32.0
    else:
        assert damage(scale) == pytest.approx(target, rel=0.011)


def test_a_layer_that_no_noise_hurts_has_no_equal_scale() -> None:
    assert equal_scale(lambda scale: 0.0, 0.1, 0.01) is None
    assert equal_scale(lambda scale: math.nan, 0.1, 0.01) is None
