from collections.abc import Callable, Sequence

import pytest
import torch
from torch import nn

from layerwise.errors import MeasureError
from layerwise.measure.activations.similarity import similarity_sums
from layerwise.measure.gradients.proxies import proxies
from layerwise.measure.interventions.ablation import ablation
from layerwise.measure.interventions.perturbations import perturbation_curves
from layerwise.measure.language.evaluation_data import EvalData
from layerwise.measure.recovery.finetuning import RecoveryRecipe
from layerwise.measure.recovery.recovery import recovery
from layerwise.measure.weights.deltas import deltas, weight_norms
from layerwise.measure.weights.predictability import predictability
from layerwise.results.rows import Score
from layerwise.stack import Stack, load, weight_hash
from measure.planted import noise, planted_stack
from measure.planted_models import own_text, planted

DEPTH = 4
READING = own_text(load(planted(depth=DEPTH)), windows=8, length=6)
RECIPE = RecoveryRecipe(steps=1, every=1, batch_tokens=32, evaluation_tokens=32)

Rows = Sequence[Score]
OF_WEIGHTS: dict[str, Callable[[Stack, int], Rows]] = {
    "deltas": lambda stack, seed: deltas(stack, seed=seed),
    "predictability": lambda stack, seed: predictability(stack, seed=seed),
    "norms": lambda stack, seed: weight_norms(stack, seed=seed),
}
MEASURES: dict[str, Callable[[Stack, EvalData, int], Rows]] = {
    "similarity": lambda stack, text, seed: similarity_sums(stack, text.batches, seed).scores(),
    "proxies": lambda stack, text, seed: proxies(stack, text, seed=seed),
    "ablation": lambda stack, text, seed: ablation(stack, text, seed=seed),
    "manipulation": lambda stack, text, seed: perturbation_curves(
        stack, text, sizes=(0.1,), alphas=(0.5,), layers=(1,), seed=seed
    ),
    "recovery": lambda stack, text, seed: recovery(
        stack, text, layers=(1, 2), treatments=("noise_50/layer", "noise_50/model"), recipe=RECIPE, seeds=1, seed=seed
    ),
    **{name: lambda stack, _, seed, measure=measure: measure(stack, seed) for name, measure in OF_WEIGHTS.items()},
}


def hooks_of(model: nn.Module) -> int:
    return sum(len(each._forward_hooks) + len(each._forward_pre_hooks) for each in model.modules())


@pytest.mark.parametrize("name", MEASURES)
def test_measures_are_deterministic_and_leave_the_model_unchanged(name: str) -> None:
    model = planted(depth=DEPTH).train()
    model.model.embed_tokens.requires_grad_(False)
    stack, flags = load(model), [weight.requires_grad for weight in model.parameters()]
    before, way = weight_hash(model), model.config._attn_implementation
    rows, hooks = MEASURES[name](stack, READING, 0), hooks_of(model)  # transformers itself leaves some, the first time
    again, other = (MEASURES[name](stack, READING, seed) for seed in (0, 1))
    assert rows == again != other
    assert rows
    assert hooks_of(model) == hooks
    assert (weight_hash(model), model.config._attn_implementation, stack.running) == (before, way, None)
    assert [weight.requires_grad for weight in model.parameters()] == flags
    assert all(weight.grad is None for weight in model.parameters())
    assert all(each.training for each in model.modules())


@pytest.mark.parametrize("name", MEASURES)
def test_non_finite_weights_are_rejected_by_layer(name: str) -> None:
    model = planted(depth=DEPTH)
    with torch.no_grad():
        model.model.layers[2].mlp.down_proj.weight[0, 0] = float("nan")
    where = "layer 2 " if name in OF_WEIGHTS else "Hidden state 3 " if name in ("similarity", "proxies") else ""
    with pytest.raises(MeasureError, match=f"{where}must be finite"):
        MEASURES[name](load(model), READING, 0)


@pytest.mark.parametrize("name", OF_WEIGHTS)
def test_half_precision_weights_are_measured_in_float64(name: str) -> None:
    weights = noise(8, 30, 10).bfloat16()
    rough, exact = (
        planted_stack({"w": each}, dtype)
        for each, dtype in ((weights, torch.bfloat16), (weights.double(), torch.float64))
    )
    assert OF_WEIGHTS[name](rough, 0) == OF_WEIGHTS[name](exact, 0)
