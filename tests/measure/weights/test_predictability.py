"""Predictability on planted stacks: noise predicts nothing, kin predict what theory says, and the nulls null."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from conftest import tiny_llama
from layerwise import load
from layerwise.errors import MeasureError
from layerwise.measure.weights.predictability import predictability
from layerwise.measure.weights.prediction import Triples, chosen_shares, held_out_layers, held_out_rows, in_sample
from layerwise.measure.weights.tensors import StackTensors, tensor_types, unit_sample
from layerwise.results.rows import Score
from layerwise.results.selection import Rows
from measure.planted import autoregressive, drifting, noise, planted_stack, stack_of_layers

HELD_OUT = ("heldout_rows_r2", "heldout_layers_r2")


def row(scores: list[Score], metric: str, against: str | None = None, **columns: Any) -> Score:
    """The one row of that metric, over all layers and types unless `columns` name some."""
    about = {"layer": None, "other": None, "part": None, **columns}
    (found,) = Rows(scores).where(metric=metric, against=against, **about)
    return found


def triples(weights: Tensor) -> Triples:
    """The triples of planted matrices (depth, units, width) as they stand."""
    tensors = StackTensors(planted_stack({"w": weights}))
    (kind,) = tensor_types(tensors, "predictability")
    return Triples(tensors, unit_sample(kind, weights.shape[2], seed=0), tuple(range(len(weights))))


@pytest.mark.parametrize("seed", range(3))
def test_independent_layers_predict_nothing_that_is_held_out(seed: int) -> None:
    scores = predictability(planted_stack({"up": noise(20, 96, 32, seed), "down": noise(20, 32, 96, seed + 50)}))
    for metric in HELD_OUT:
        assert row(scores, metric).value <= 0
        # One layer of a few thousand entries may be off by chance.
        assert all(row(scores, metric, layer=layer).value <= 0.02 for layer in range(1, 19))
    in_sample_r2 = row(scores, "in_sample_r2")
    assert in_sample_r2.value == pytest.approx(64 / 95, abs=0.03)
    assert row(scores, "in_sample_r2", against="p_over_n").value == pytest.approx(64 / 95)


def test_more_predictors_than_rows_fit_anything() -> None:
    scores = predictability(planted_stack({"w": noise(12, 30, 30)}))
    assert row(scores, "in_sample_r2").value == pytest.approx(1, abs=1e-6)
    assert row(scores, "in_sample_r2", against="p_over_n").value == 1
    assert row(scores, "heldout_rows_r2").value <= 0


def test_an_autoregressive_stack_is_predicted_as_well_as_theory_allows() -> None:
    rho = 0.9
    best = 2 * rho**2 / (1 + rho**2)
    scores = predictability(planted_stack({"w": autoregressive(24, 400, 30, rho)}))
    for metric in HELD_OUT:
        assert row(scores, metric).value == pytest.approx(best, abs=0.03)
        assert row(scores, metric, against="permuted_units").value < 0.02
        assert row(scores, metric, against="shuffled_layers").value < row(scores, metric).value - 0.3


def test_the_norms_of_independent_layers_are_worse_than_their_mean() -> None:
    scales = 1 + 0.1 * torch.randn(60, generator=torch.Generator().manual_seed(1))
    scores = predictability(planted_stack({"w": noise(60, 12, 6) * scales[:, None, None]}))
    assert row(scores, "norm_r2", against="shuffled_layers").value == pytest.approx(-0.5, abs=0.05)
    assert row(scores, "norm_r2").value == pytest.approx(-0.5, abs=0.4)


def test_smooth_norms_are_predictable_without_meaning_anything() -> None:
    growing = noise(20, 30, 30) * torch.linspace(1, 3, 20)[:, None, None]
    scores = predictability(planted_stack({"w": growing}))
    assert row(scores, "norm_r2").value > 0.9
    band = row(scores, "norm_r2", against="shuffled_layers")
    assert band.high is not None
    assert band.high < 0.5
    assert row(scores, "heldout_rows_r2").value <= 0


def test_related_layers_share_subspaces_and_strangers_do_not() -> None:
    kin, strangers = (predictability(planted_stack({"w": w})) for w in (drifting(10, 64, 64), noise(10, 64, 64)))
    for metric in ("subspace", "subspace_units"):
        assert row(kin, metric).value > 0.8
        band = row(kin, metric, against="shuffled_layers")
        assert band.high is not None
        assert band.high < row(kin, metric).value
        assert row(strangers, metric).value == pytest.approx(16 / 64, abs=0.03)
    assert row(kin, "docs").value > 0.8 > row(strangers, "docs").value
    assert row(kin, "subspace", layer=3, other=4, part="w").value > 0.8


def test_a_layer_that_is_held_out_is_in_no_fit() -> None:
    weights = autoregressive(14, 40, 8, rho=0.8)
    other = weights.clone()
    # Positions 1..12 are held out in three groups of four. Layer 4 is the last of the first group and a neighbour of
    # the second; it is in no triple of the positions 1 and 2.
    other[4] *= 100
    shares = {1: 1.0, 6: 1.0, 12: 1.0}
    before, after = (held_out_layers(triples(each), shares) for each in (weights, other))
    assert after[1] == before[1]
    assert after[2] == before[2]
    assert after[4] != before[4]
    assert after[10] != before[10]


def test_rows_that_are_held_out_choose_nothing() -> None:
    weights = noise(6, 50, 4)
    kept = triples(weights)
    other = weights.clone()
    other[:, kept.sample.rows[40:]] = noise(6, 10, 4, seed=9)
    changed = triples(other)
    assert chosen_shares(kept) == chosen_shares(changed)
    before, after = (held_out_rows(each, {1: 1.0}, [2]) for each in (kept, changed))
    assert before[2].errors != after[2].errors


def test_permuted_units_are_another_permutation_in_every_layer() -> None:
    real = triples(noise(1, 30, 4).expand(6, 30, 4))
    permuted = Triples(real.tensors, real.sample, real.order, permuted=5)
    (_, x, y), (_, moved_x, moved_y) = next(real.walk([2])), next(permuted.walk([2]))
    assert torch.equal(x[:, :4], y)
    assert not torch.equal(moved_x[:, :4], moved_y)
    assert torch.equal(moved_y.sort(dim=0).values, y.sort(dim=0).values)


def test_walking_reads_what_reading_one_by_one_would() -> None:
    every = triples(noise(8, 12, 4))
    for position, x, y in every.walk(every.positions, rows=5):
        ((_, alone_x, alone_y),) = every.walk([position], rows=5)
        assert torch.equal(x, alone_x)
        assert torch.equal(y, alone_y)
        assert x.shape == (5, 8)


def test_a_fit_in_sample_needs_no_signal() -> None:
    residual = in_sample(triples(noise(5, 200, 40)), [2])[2]
    assert 1 - residual.errors / residual.total == pytest.approx(80 / 199, abs=0.03)


def test_a_model_has_all_levels_with_their_nulls() -> None:
    scores = predictability(load(tiny_llama(depth=8, seed=5)))
    metrics = {(s.metric, s.against) for s in scores}
    for metric in (*HELD_OUT, "subspace", "docs"):
        assert {(metric, None), (metric, "random_twin")} <= metrics
    assert {(metric, null) for metric in HELD_OUT for null in ("permuted_units", "shuffled_layers")} <= metrics
    shuffled = {(metric, "shuffled_layers") for metric in ("norm_r2", "subspace")}
    assert {("in_sample_r2", "p_over_n"), *shuffled} <= metrics
    assert row(scores, "docs", layer=3, other=4, part="mlp.up_proj.weight")
    assert not any(metric == "predicted_weight_loss" for metric, _ in metrics)
    assert predictability(load(tiny_llama(depth=8, seed=5))) == scores


def test_unlike_shapes_are_left_out_and_shallow_stacks_have_fewer_levels() -> None:
    layers = [{"even": noise(1, 12, 6, n)[0], "grows": noise(1, 4 + n, 6, n)[0]} for n in range(5)]
    scores = predictability(stack_of_layers(layers))
    assert {s.part for s in scores} == {"even", None}
    assert not any(s.metric.startswith("heldout_layers_r2") for s in scores)
    with pytest.raises(MeasureError, match="predictability needs at least 4 layers"):
        predictability(stack_of_layers(layers[:3]))


def test_matrices_that_do_not_vary_have_no_rows() -> None:
    scores = predictability(planted_stack({"flat": torch.ones(6, 12, 6), "zero": torch.zeros(6, 12, 6)}))
    assert not any(s.metric.startswith(("heldout", "in_sample", "norm_r2")) for s in scores if s.against is None)


def test_bfloat16_weights_are_regressed_in_double_precision() -> None:
    weights = noise(8, 30, 10).bfloat16()
    rough = predictability(planted_stack({"w": weights}, torch.bfloat16))
    assert rough == predictability(planted_stack({"w": weights.double()}, torch.float64))
