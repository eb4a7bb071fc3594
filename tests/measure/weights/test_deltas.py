import math

import numpy as np
import pytest
import torch

from conftest import tiny_llama
from layerwise import load
from layerwise.errors import MeasureError
from layerwise.measure.weights.deltas import correlation_summands, deltas, effective_rank, name_verdict, weight_norms
from layerwise.results.estimate import Estimate
from layerwise.results.rows import Score
from layerwise.results.selection import Rows
from measure.planted import alternating, autoregressive, drifting, noise, planted_stack, stack_of_layers

VERDICTS = ("smooth", "no_lag_structure", "oscillating", "inconclusive")


def row(scores: list[Score], metric: str, lag: int = 1, part: str | None = None, against: str | None = None) -> Score:
    (found,) = Rows(scores).where(metric=metric, distance=lag, part=part, against=against)
    return found


def said(scores: list[Score]) -> str:
    (found,) = [s.metric for s in scores if s.metric in VERDICTS and s.part is None]
    return found


def test_independent_layers_have_correlation_minus_half() -> None:
    weights, shared = noise(30, 100, 200), 3 * noise(1, 100, 200, 100)
    for planted in (weights, weights + shared):
        scores = deltas(planted_stack({"w": planted}))
        assert -0.51 <= row(scores, "correlation").value <= -0.49
        assert abs(row(scores, "correlation", lag=2).value) < 0.01
        assert row(scores, "correlation", against="independent").value == -0.5
        assert row(scores, "correlation", against="independent", lag=3).value == 0


@pytest.mark.parametrize("rho", [0.3, 0.5, 0.9])
def test_autoregressive_layers_have_their_correlation(rho: float) -> None:
    scores = deltas(planted_stack({"w": autoregressive(30, 100, 200, rho)}))
    found = row(scores, "correlation")
    assert found.value == pytest.approx(-(1 - rho) / 2, abs=0.02)
    assert found.low < found.value < found.high
    assert said(scores) == "smooth"


def test_smooth_and_oscillating_layers_are_distinguished() -> None:
    assert said(deltas(planted_stack({"w": drifting(12, 60, 60)}))) == "smooth"
    assert said(deltas(planted_stack({"w": alternating(12, 60, 60)}))) == "oscillating"
    told = [said(deltas(planted_stack({"w": noise(12, 40, 40, seed)}), seed=seed)) for seed in range(20)]
    assert told.count("no_lag_structure") >= 18


def test_shuffled_orders_remove_a_drift() -> None:
    scores = deltas(planted_stack({"w": drifting(20, 40, 40)}))
    found, band = row(scores, "correlation"), row(scores, "correlation", against="shuffled")
    assert band.low < -0.5 < band.high < found.value


def test_correlations_match_inner_products_of_differences() -> None:
    weights = noise(6, 3, 4).double().flatten(1)
    steps = weights.diff(dim=0)
    above, below = correlation_summands((weights @ weights.T).numpy(), 2)
    assert above[1] == pytest.approx(float(steps[1] @ steps[3]))
    assert below[1] == pytest.approx(float(steps[1].square().sum() + steps[3].square().sum()) / 2)


def test_types_are_weighted_equally() -> None:
    scores = deltas(planted_stack({"large": noise(10, 90, 90), "small": 100 * drifting(10, 9, 9)}))
    parts = [row(scores, "correlation", part=name).value for name in ("large", "small")]
    assert row(scores, "correlation").value == pytest.approx(sum(parts) / 2)
    bands = [row(scores, "correlation", against="shuffled", part=name).value for name in ("large", "small")]
    assert row(scores, "correlation", against="shuffled").value == pytest.approx(sum(bands) / 2)


def test_rounding_is_no_difference() -> None:
    noise_of_sums = 1 + 1e-15 * np.random.default_rng(0).standard_normal((6, 6))
    assert not correlation_summands(noise_of_sums + noise_of_sums.T, 1)[1].any()


def test_verdict_requires_exclusion_of_zero() -> None:
    assert name_verdict(Estimate(0.3, 0.1, 0.5)) == "smooth"
    assert name_verdict(Estimate(-0.3, -0.5, -0.1)) == "oscillating"
    assert name_verdict(Estimate(0.05, 0.01, 0.09)) == "no_lag_structure"  # not zero, and less than what counts
    assert name_verdict(Estimate(0.0, -0.2, 0.2)) == "inconclusive"
    assert name_verdict(Estimate(0.3)) == "inconclusive"


def test_layer_norms_do_not_change_the_correlation() -> None:
    """Of independent layers the first has three times the norm: the raw correlation leaves -1/2, the verdict stays."""
    weights = noise(12, 60, 60)
    weights[0] *= 3
    scores = deltas(planted_stack({"w": weights}))
    assert abs(row(scores, "correlation").value + 0.5) > 0.05
    assert said(scores) == "no_lag_structure"
    assert abs(row(scores, "no_lag_structure").value) < 0.02


def norm_row(scores: list[Score], metric: str, layer: int, against: str | None = None) -> Score:
    (found,) = Rows(scores).where(metric=metric, layer=layer, against=against)
    return found


def test_effective_rank_is_the_entropy_of_singular_values() -> None:
    matrix = torch.zeros(9, 7, dtype=torch.float64)
    matrix[:3, :3] = 2 * torch.eye(3)
    assert effective_rank(matrix) == pytest.approx(3)
    unequal = effective_rank(torch.diag(torch.tensor([3.0, 1.0], dtype=torch.float64)))
    assert unequal == pytest.approx(math.exp(-(0.75 * math.log(0.75) + 0.25 * math.log(0.25))))


def test_layer_norm_includes_all_nonzero_matrices() -> None:
    layers = [{"w": noise(1, 4 + n, 6, n)[0], "v": noise(1, 8, 5, n)[0], "zero": torch.zeros(4, 4)} for n in range(4)]
    scores = weight_norms(stack_of_layers(layers))
    matrices = [layers[1][name].double() for name in ("w", "v")]
    assert norm_row(scores, "norm", 1).value == pytest.approx(math.sqrt(sum(float(m.square().sum()) for m in matrices)))
    assert norm_row(scores, "effective_rank", 1).value == pytest.approx(sum(map(effective_rank, matrices)) / 2)
    assert {score.layer for score in scores} == {0, 1, 2, 3}


def test_trained_layer_exceeds_the_random_model() -> None:
    model = tiny_llama(seed=5)
    with torch.no_grad():
        # One strong direction, as training would leave.
        model.model.layers[3].mlp.up_proj.weight += 1.0
    scores = weight_norms(load(model))
    null = norm_row(scores, "effective_rank", 2, "random_init")
    assert null.low <= norm_row(scores, "effective_rank", 2).value <= null.high
    assert norm_row(scores, "effective_rank", 3).value < null.low
    assert norm_row(scores, "norm", 3).value > norm_row(scores, "norm", 3, "random_init").high


def test_layers_without_matrices_are_rejected() -> None:
    with pytest.raises(MeasureError, match="Layers must have weight matrices"):
        weight_norms(stack_of_layers([{"gain": torch.ones(4)} for _ in range(4)]))
    assert weight_norms(planted_stack({"w": noise(4, 10, 10)}))
