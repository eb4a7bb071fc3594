import math
from functools import cache
from typing import Any

import pytest
import torch

from conftest import tiny_llama
from layerwise.measure.activations.block_influence import angular_distances, block_influence_sums
from layerwise.measure.gradients.proxies import compute_proxies, find_sublayers, proxies
from layerwise.measure.interventions.sweep import sweep
from layerwise.measure.language.evaluation_data import EvalData
from layerwise.plan import Plan, edits
from layerwise.results.rows import Score
from layerwise.results.selection import Rows
from layerwise.stack import Stack, load
from measure.activations.test_similarity import cosine, padded, random
from measure.by_layer import by_layer
from measure.language.test_loss import ragged_batch
from measure.planted_models import IDLE, idle_stack, idle_text, planted, with_harm
from rounding import unit


@cache
def scores_of_planted() -> list[Score]:
    return proxies(idle_stack(), idle_text())


def test_block_influence_and_angles_match_a_loop_over_tokens() -> None:
    states, counted = [random(seed, 3, 6, 5) + 0.3 for seed in range(4)], padded(6, 4, 1)
    found, between = block_influence_sums(states, counted), angular_distances(states, counted)
    for row, length in enumerate((6, 4, 1)):
        for layer in range(3):
            each = [1 - cosine(states[layer][row, t], states[layer + 1][row, t]) for t in range(length)]
            assert found[layer, row] == pytest.approx(sum(each))
        for i in range(4):
            for j in range(4):
                last = cosine(states[i][row, length - 1], states[j][row, length - 1])
                assert between[i, j, row] == pytest.approx(math.acos(min(1, last)) / math.pi, abs=1e-7)


def test_identity_layer_scores_zero() -> None:
    name = IDLE
    for metric in ("block_influence", "gate_gradient", "gate_sensitivity"):
        found = by_layer(scores_of_planted(), metric)
        assert found[name].value == found[name].low == found[name].high == 0.0
        others = [abs(found[layer].value) for layer in range(6) if layer != IDLE]
        assert min(others) > 1e-3
    distances = Rows(scores_of_planted()).where(metric="angular_distance", against=None)
    angular = {(row.layer, row.distance): row for row in distances}
    # Norms of equal states may round differently: a unit for each norm and each quotient.
    rounding = 4 * unit(torch.float64)
    assert abs(angular[IDLE, 1].value) <= rounding
    assert abs(angular[2, 2].value - angular[3, 1].value) <= rounding
    gates = by_layer(scores_of_planted(), "gate_gradient")
    assert gates[name, "attn"].value == gates[name, "mlp"].value == 0.0


def outside(scores: list[Score]) -> set[Any]:
    gates, bands = (by_layer(scores, "gate_gradient", against=against) for against in (None, "no_effect"))
    assert bands.keys() == gates.keys()
    assert len(gates) == 18
    for gate in gates.values():
        assert gate.low <= gate.value <= gate.high
    return {about for about, gate in gates.items() if abs(gate.value) > bands[about].high}


def test_gates_have_no_effect_on_generated_text() -> None:
    """The expected gradient of a model's loss on its own samples is zero."""
    assert outside(scores_of_planted()) == set()


def test_sensitivity_is_the_mean_absolute_slope_of_windows() -> None:
    slopes = []
    few = EvalData("few", "1", idle_text().length, "next_token", idle_text().batches[:1])
    (batch,) = few.batches
    for row in range(len(batch.windows)):
        alpha = torch.ones((), requires_grad=True)
        inputs = {name: value[row : row + 1] for name, value in batch.inputs.items()}
        with torch.no_grad():
            captured = idle_stack().capture(**inputs)
        state = captured.state
        for layer in range(idle_stack().depth):
            after = idle_stack().apply(layer, state, captured)
            state = torch.lerp(state, after, alpha) if layer == 4 else after
        logits = idle_stack().finish(state, inputs).logits
        targets = batch.targets[row : row + 1].flatten()
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets, ignore_index=-100, reduction="sum")
        slopes.append(float(torch.autograd.grad(loss, alpha)[0]))
    found = by_layer(compute_proxies(idle_stack(), few, None), "gate_sensitivity")[4]
    assert found.value == pytest.approx(sum(map(abs, slopes)) / few.tokens, rel=1e-4)


def test_layer_with_excessive_scale_is_found() -> None:
    stack = load(planted(identity=[IDLE]))
    with torch.no_grad():
        stack.model.model.layers[3].mlp.down_proj.weight *= 4
    scores = compute_proxies(stack, idle_text(), find_sublayers(stack, idle_text()))
    gates = by_layer(scores, "gate_gradient")
    assert {3, (3, "mlp")} <= outside(scores)
    assert max(gates[3].p_adjusted, gates[3, "mlp"].p_adjusted) < 0.05
    assert gates[3, "mlp"].value < 0


def test_gate_gradient_is_the_first_order_effect_of_a_layer() -> None:
    stack, reading = with_harm(3)
    with torch.no_grad():
        for name, weight in stack.model.model.layers[3].named_parameters():
            if name.endswith(("o_proj.weight", "down_proj.weight")):
                weight *= 0.004
    gate = by_layer(compute_proxies(stack, reading, None), "gate_gradient")[3]
    losses = sweep(stack, [edits.skip(Plan.identity(6), 3)], reading)
    total = {plan: sum(row.nll for row in losses if row.plan == plan) for plan in ("0-5", "0-2 4 5")}
    effect = (total["0-2 4 5"] - total["0-5"]) / reading.tokens
    assert effect != 0
    assert gate.value == pytest.approx(effect, rel=0.1)


def test_random_model_is_a_separate_null() -> None:
    for metric in ("block_influence", "angular_distance", "gate_sensitivity"):
        rows = Rows(scores_of_planted()).where(metric=metric, part=None)
        own, null = (rows.where(against=against) for against in (None, "random_init"))
        assert [(row.layer, row.distance) for row in null] == [(row.layer, row.distance) for row in own]
        assert all(row.value > 0 for row in null)


def test_few_windows_have_values_without_interval() -> None:
    stack: Stack = load(tiny_llama())
    reading = EvalData("ragged", "0", 12, "next_token", (ragged_batch(),))
    found = compute_proxies(stack, reading, find_sublayers(stack, reading))
    for metric in ("gate_gradient", "gate_sensitivity"):
        score = by_layer(found, metric)[0]
        assert score.low is None
        assert score.value != 0.0


def test_bfloat16_weights_are_scored() -> None:
    stack = load(planted(identity=[IDLE]).to(torch.bfloat16))
    found = compute_proxies(stack, idle_text(), find_sublayers(stack, idle_text()))
    assert by_layer(found, "block_influence")[IDLE].value == 0.0
    assert all(math.isfinite(score.value) for score in found)
