"""Delta correlations on stacks of known lag structure, and laws that hold for any stack."""

import numpy as np
import pytest

from conftest import tiny_llama
from layerwise import load
from layerwise.measure.weights.deltas import correlation_summands, deltas, name_verdict
from layerwise.results.estimate import Estimate
from layerwise.results.rows import Score
from layerwise.results.selection import Rows
from measure.planted import alternating, autoregressive, drifting, noise, planted_stack

VERDICTS = ("smooth", "no_lag_structure", "oscillating", "unresolved")


def row(scores: list[Score], metric: str, lag: int = 1, part: str | None = None, against: str | None = None) -> Score:
    (found,) = Rows(scores).where(metric=metric, distance=lag, part=part, against=against)
    return found


def said(scores: list[Score]) -> str:
    (found,) = [s.metric for s in scores if s.metric in VERDICTS and s.part is None]
    return found


def test_independent_layers_give_a_half_whatever_they_share() -> None:
    weights, shared = noise(30, 100, 200), 3 * noise(1, 100, 200, 100)
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
    assert found.low < found.value < found.high
    assert said(scores) == "smooth"


def test_smooth_none_and_oscillating_are_told_apart() -> None:
    assert said(deltas(planted_stack({"w": drifting(12, 60, 60)}))) == "smooth"
    assert said(deltas(planted_stack({"w": alternating(12, 60, 60)}))) == "oscillating"
    told = [said(deltas(planted_stack({"w": noise(12, 40, 40, seed)}), seed=seed)) for seed in range(20)]
    assert told.count("no_lag_structure") >= 18


def test_shuffled_orders_undo_a_drift() -> None:
    scores = deltas(planted_stack({"w": drifting(20, 40, 40)}))
    found, band = row(scores, "correlation"), row(scores, "correlation", against="shuffled")
    assert band.low < -0.5 < band.high < found.value


def test_parts_are_the_inner_products_of_differences() -> None:
    weights = noise(6, 3, 4).double().flatten(1)
    steps = weights.diff(dim=0)
    above, below = correlation_summands((weights @ weights.T).numpy(), 2)
    assert above[1] == pytest.approx(float(steps[1] @ steps[3]))
    assert below[1] == pytest.approx(float(steps[1].square().sum() + steps[3].square().sum()) / 2)


def test_types_weigh_the_same_in_all() -> None:
    scores = deltas(planted_stack({"large": noise(10, 90, 90), "small": 100 * drifting(10, 9, 9)}))
    parts = [row(scores, "correlation", part=name).value for name in ("large", "small")]
    assert row(scores, "correlation").value == pytest.approx(sum(parts) / 2)
    bands = [row(scores, "correlation", against="shuffled", part=name).value for name in ("large", "small")]
    assert row(scores, "correlation", against="shuffled").value == pytest.approx(sum(bands) / 2)


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
    assert not correlation_summands(noise_of_sums + noise_of_sums.T, 1)[1].any()


def test_shallow_stacks_have_the_lags_that_exist() -> None:
    scores = deltas(planted_stack({"w": noise(4, 8, 8)}))
    assert {s.distance for s in scores} == {1, 2}
    assert row(scores, "correlation", 2).low is None


def test_a_verdict_is_shown_or_not_resolved() -> None:
    assert name_verdict(Estimate(0.3, 0.1, 0.5)) == "smooth"
    assert name_verdict(Estimate(-0.3, -0.5, -0.1)) == "oscillating"
    assert name_verdict(Estimate(0.05, 0.01, 0.09)) == "no_lag_structure"  # not zero, and less than what counts
    assert name_verdict(Estimate(0.0, -0.2, 0.2)) == "unresolved"
    assert name_verdict(Estimate(0.3)) == "unresolved"


def test_the_norm_of_a_layer_is_no_structure() -> None:
    """Of independent layers the first has three times the norm: the raw correlation leaves -1/2, the verdict stays."""
    weights = noise(12, 60, 60)
    weights[0] *= 3
    scores = deltas(planted_stack({"w": weights}))
    assert abs(row(scores, "correlation").value + 0.5) > 0.05
    assert said(scores) == "no_lag_structure"
    assert abs(row(scores, "no_lag_structure").value) < 0.02
