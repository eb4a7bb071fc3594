"""Delta correlations on stacks whose lag structure is known, and the laws that hold for any stack."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import tiny_llama
from layerwise import load
from layerwise.errors import MeasureError
from layerwise.measure.stats.null_comparison import Parts
from layerwise.measure.weights.deltas import Excess, autocovariance_parts, correlation_parts, deltas, verdict
from layerwise.results.rows import Score
from layerwise.results.selection import Rows
from measure.planted import alternating, autoregressive, drifting, noise, planted_stack
from tier import by_tier

VERDICTS = ("smooth", "no_lag_structure", "oscillating", "unresolved")


def row(scores: list[Score], metric: str, lag: int = 1, part: str | None = None, against: str | None = None) -> Score:
    """The one row of that metric."""
    (found,) = Rows(scores).where(metric=metric, amount=lag, part=part, against=against)
    return found


def said(scores: list[Score]) -> str:
    """The verdict on all tensor types."""
    (found,) = [s.metric for s in scores if s.metric in VERDICTS and s.part is None]
    return found


@pytest.mark.parametrize("seed", range(3))
def test_independent_layers_give_a_half_whatever_they_share(seed: int) -> None:
    weights = noise(30, 100, 200, seed)
    shared = 3 * noise(1, 100, 200, seed + 100)
    for planted in (weights, weights + shared):
        scores = deltas(planted_stack({"w": planted}))
        assert -0.51 <= row(scores, "correlation").value <= -0.49
        assert abs(row(scores, "correlation", lag=2).value) < 0.01
        assert row(scores, "correlation", against="independent").value == -0.5
        assert row(scores, "correlation", against="independent", lag=3).value == 0


@pytest.mark.parametrize("rho", [0.3, 0.5, 0.9])
def test_an_autoregressive_stack_gives_its_correlation(rho: float) -> None:
    scores = deltas(planted_stack({"w": autoregressive(30, 100, 200, rho)}))
    found = row(scores, "correlation")
    assert found.value == pytest.approx(-(1 - rho) / 2, abs=0.02)
    assert found.low is not None
    assert found.high is not None
    assert found.low < found.value < found.high
    assert said(scores) == "smooth"


def test_smooth_none_and_oscillating_are_told_apart() -> None:
    assert said(deltas(planted_stack({"w": drifting(12, 60, 60)}))) == "smooth"
    assert said(deltas(planted_stack({"w": alternating(12, 60, 60)}))) == "oscillating"
    told = [said(deltas(planted_stack({"w": noise(12, 40, 40, seed)}), seed=seed)) for seed in range(20)]
    assert told.count("no_lag_structure") >= 18


def test_an_alternation_of_period_two_has_the_correlation_of_theory() -> None:
    scores = deltas(planted_stack({"w": alternating(30, 100, 200, amplitude=0.5)}))
    assert row(scores, "correlation").value == pytest.approx(-(1 + 4 * 0.25) / (2 + 4 * 0.25), abs=0.01)


def test_shuffled_orders_undo_a_drift() -> None:
    scores = deltas(planted_stack({"w": drifting(20, 40, 40)}))
    found, band = row(scores, "correlation"), row(scores, "correlation", against="shuffled")
    assert band.low is not None
    assert band.high is not None
    assert band.low < -0.5 < band.high < found.value


def test_the_correlation_follows_from_the_autocovariances() -> None:
    flat = autoregressive(300, 30, 30, rho=0.6).double().flatten(1)
    products = (flat @ flat.T).numpy()

    def share(parts: Parts) -> float:
        return float(parts.numerators.sum() / parts.denominators.sum())

    lag = {k: share(autocovariance_parts(products, k)) for k in (1, 2)}
    assert lag[1] == pytest.approx(0.6, abs=0.03)
    expected = (2 * lag[1] - 1 - lag[2]) / (2 * (1 - lag[1]))
    assert share(correlation_parts(products, 1)) == pytest.approx(expected, abs=0.01)


@settings(max_examples=by_tier(fast=3, full=8, nightly=40), deadline=None)
@given(seed=st.integers(0, 1000), depth=st.integers(4, 9), lag=st.integers(1, 2))
def test_a_shared_matrix_and_the_direction_of_depth_do_not_matter(seed: int, depth: int, lag: int) -> None:
    weights = noise(depth, 4, 5, seed).double()
    moved = (weights + 2 * noise(1, 4, 5, seed + 1)).flip(0)
    values = []
    for each in (weights, moved):
        parts = correlation_parts((each.flatten(1) @ each.flatten(1).T).numpy(), lag)
        values.append(parts.numerators.sum() / parts.denominators.sum())
    assert values[0] == pytest.approx(values[1], abs=1e-9)
    assert -1 <= values[0] <= 1


def test_parts_are_the_inner_products_of_differences() -> None:
    weights = noise(6, 3, 4).double().flatten(1)
    steps = weights.diff(dim=0)
    parts = correlation_parts((weights @ weights.T).numpy(), 2)
    assert parts.numerators[1] == pytest.approx(float(steps[1] @ steps[3]))
    assert parts.denominators[1] == pytest.approx(float(steps[1].square().sum() + steps[3].square().sum()) / 2)
    centred = weights - weights.mean(dim=0)
    parts = autocovariance_parts((weights @ weights.T).numpy(), 2)
    assert parts.numerators[1] == pytest.approx(float(centred[1] @ centred[3]))
    assert parts.denominators[1] == pytest.approx(float(centred.square().sum()) / 6)


def test_types_weigh_the_same_in_all() -> None:
    scores = deltas(planted_stack({"large": noise(10, 90, 90), "small": 100 * drifting(10, 9, 9)}))
    parts = [row(scores, "correlation", part=name).value for name in ("large", "small")]
    assert row(scores, "correlation").value == pytest.approx(sum(parts) / 2)
    bands = [row(scores, "correlation", against="shuffled", part=name).value for name in ("large", "small")]
    assert row(scores, "correlation", against="shuffled").value == pytest.approx(sum(bands) / 2)


def test_bfloat16_weights_are_summed_in_double_precision() -> None:
    weights = noise(12, 60, 60).bfloat16()
    rough = deltas(planted_stack({"w": weights}, torch.bfloat16))
    exact = deltas(planted_stack({"w": weights.double()}, torch.float64))
    assert rough == exact


def test_a_trained_model_stands_beside_its_random_twin() -> None:
    scores = deltas(load(tiny_llama(seed=5)))
    twin = row(scores, "correlation", against="random_twin")
    assert twin.value == pytest.approx(-0.5, abs=0.05)
    assert twin.value != row(scores, "correlation").value
    assert {s.part for s in scores} >= {"self_attn.q_proj.weight", "mlp.down_proj.weight", None}
    assert not any("norm" in (s.part or "") for s in scores)


def test_layers_that_are_all_the_same_have_no_correlation() -> None:
    same = noise(1, 8, 8).expand(6, 8, 8)
    scores = deltas(planted_stack({"same": same, "other": noise(6, 8, 8, 1)}))
    assert {s.part for s in scores} == {"other", None}


def test_rounding_of_equal_layers_is_no_difference() -> None:
    noise_of_sums = 1 + 1e-15 * np.random.default_rng(0).standard_normal((6, 6))
    for parts in (correlation_parts, autocovariance_parts):
        assert not parts(noise_of_sums + noise_of_sums.T, 1).denominators.any()


def test_shallow_stacks_have_the_lags_that_exist() -> None:
    scores = deltas(planted_stack({"w": noise(4, 8, 8)}))
    assert {s.amount for s in scores} == {1, 2}
    assert row(scores, "correlation", 2).low is None
    with pytest.raises(MeasureError, match="at least 4 layers"):
        deltas(planted_stack({"w": noise(3, 8, 8)}))


def test_the_seed_fixes_every_row() -> None:
    stack = planted_stack({"w": noise(10, 20, 20)})
    assert deltas(stack, seed=1) == deltas(stack, seed=1)
    first, second = (
        row(deltas(stack, seed=1), "correlation", against="shuffled"),
        row(deltas(stack, seed=2), "correlation", against="shuffled"),
    )
    assert first != second
    assert first.value == pytest.approx(second.value, abs=0.01)


def test_a_verdict_is_shown_or_not_resolved() -> None:
    assert verdict(Excess(0.3, 0.1, 0.5, 0.1)) == "smooth"
    assert verdict(Excess(-0.3, -0.5, -0.1, 0.1)) == "oscillating"
    assert verdict(Excess(0.05, 0.01, 0.09, 0.02)) == "no_lag_structure"  # not zero, and less than what counts
    assert verdict(Excess(0.0, -0.2, 0.2, 0.1)) == "unresolved"
    assert verdict(Excess(0.3, None, None, 0.1)) == "unresolved"


def test_the_norm_of_a_layer_is_no_structure() -> None:
    """Independent layers, the first of three times the norm: the raw correlation leaves -1/2, the verdict stays."""
    weights = noise(12, 60, 60)
    weights[0] *= 3
    scores = deltas(planted_stack({"w": weights}))
    assert abs(row(scores, "correlation").value + 0.5) > 0.05
    assert said(scores) == "no_lag_structure"
    assert abs(row(scores, "no_lag_structure").value) < 0.02
