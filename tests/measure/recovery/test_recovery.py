import math
from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from layerwise.errors import MeasureError, UnsupportedModelError
from layerwise.measure.interventions.intervention import ResultCache
from layerwise.measure.language.evaluation_data import split
from layerwise.measure.recovery import recovery as module
from layerwise.measure.recovery.finetuning import (
    RecoveryRecipe,
    RecoveryTraining,
    add_noise,
    find_equal_scale,
    noise_direction,
)
from layerwise.measure.recovery.loss_curve import RUNS, recovery_time
from layerwise.measure.recovery.recovery import TREATMENTS, LayerRecovery, associations, recovery
from layerwise.results.rows import Score
from layerwise.stack import Stack, load, weight_hash
from layerwise.stack.weights import layer_weights
from measure.planted_models import own_text, planted

Study = tuple[list[Score], list[list[Score]]]

STACK = load(planted(identity=[3]))
READING = own_text(STACK)
RECIPE = RecoveryRecipe(
    steps=4, every=2, layer_rate=1e-3, model_rate=1e-4, batch_tokens=64, evaluation_tokens=120, tolerance=0.005
)
LAYERS = (1, 3)
SEEDS = 2


def study(stack: Stack = STACK, **changed: object) -> Study:
    handed: list[list[Score]] = []
    asked: dict[str, object] = {"layers": LAYERS, "treatments": TREATMENTS, "recipe": RECIPE, "seeds": SEEDS, **changed}
    asked.setdefault("cache", ResultCache(sink=lambda rows: handed.append(list(rows))))
    return recovery(stack, READING, **asked), handed  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def measured() -> Study:
    return study()


def one(rows: Sequence[Score], treatment: str, metric: str) -> Score:
    (found,) = [row for row in about(rows, 1, treatment) if (row.metric, row.against) == (metric, None)]
    return found


def about(rows: Sequence[Score], layer: int | None, treatment: str) -> list[Score]:
    return [row for row in rows if (row.layer, f"{row.condition}/{row.variant}") == (layer, treatment)]


@pytest.mark.parametrize("scope", ["layer", "model"])
def test_zero_damage_recovers_at_once(scope: str) -> None:
    tuning = RecoveryTraining(STACK, READING, RECIPE, 0)
    weights = layer_weights(STACK, 1)
    nothing = add_noise(weights, noise_direction(weights, (0,)), 0.0)
    control = tuning.trajectory(1, scope, {}, (0, 0))  # type: ignore[arg-type]
    damaged = tuning.trajectory(1, scope, nothing, (0, 0))  # type: ignore[arg-type]
    found = recovery_time(damaged, control, 0.05)
    assert (found.steps, found.censored, found.area, found.initial_damage) == (0, False, 0.0, 0.0)
    assert control.nll[0] != control.nll[-1], "the control was trained"


def test_layer_step_matches_a_model_step_with_frozen_layers() -> None:
    tuning = RecoveryTraining(STACK, READING, RECIPE, 0)
    still = replace(RECIPE, model_rate=0.0, layer_rate=0.0)
    frozen = RecoveryTraining(STACK, READING, still, 0)
    weights = add_noise(layer_weights(STACK, 4), noise_direction(layer_weights(STACK, 4), (1,)), 0.5)
    by_layer = frozen.trajectory(4, "layer", weights, (0, 0))
    by_model = frozen.trajectory(4, "model", weights, (0, 0))
    assert by_layer.nll == pytest.approx(by_model.nll, rel=1e-6)
    assert by_layer.nll[0] == by_layer.nll[-1]
    assert tuning.trajectory(4, "layer", weights, (0, 0)).nll[-1] != by_layer.nll[-1]


def test_training_and_evaluation_share_no_document() -> None:
    recovered, _ = split(READING, 0)
    evaluated = RecoveryTraining(STACK, READING, RECIPE, 0).evaluation
    names = [{window.document for batch in part.batches for window in batch.windows} for part in (recovered, evaluated)]
    assert all(names)
    assert not names[0] & names[1]


def test_training_reduces_held_out_loss() -> None:
    recipe = replace(RECIPE, steps=24, every=8, layer_rate=5e-3)
    tuning = RecoveryTraining(STACK, READING, recipe, 0)
    weights = add_noise(layer_weights(STACK, 5), noise_direction(layer_weights(STACK, 5), (1,)), 2.0)
    control, damaged = tuning.trajectory(5, "layer", {}, (0, 0)), tuning.trajectory(5, "layer", weights, (0, 0))
    gap = [own - other for own, other in zip(damaged.nll, control.nll, strict=True)]
    assert gap[0] > 0.2
    assert gap[-1] < 0.8 * gap[0]


@pytest.mark.slow
def test_equal_damage_is_equal_on_evaluation_text() -> None:
    rows, _ = study(layers=[0, 1, 5], treatments=["equal_damage/layer"], seeds=3)
    starts = [row for row in rows if row.metric == "initial_damage"]
    assert [row.layer for row in starts] == [0, 1, 5]
    for row in starts:
        assert row.value == pytest.approx(RECIPE.equal_damage, abs=RECIPE.equal_tolerance)
        assert row.low > 0.8 * RECIPE.equal_damage, "every seed starts there"


def test_undamaged_layer_has_no_recovery(measured: Study) -> None:
    rows, handed = measured
    mine = about(rows, 3, "noise_50/layer")
    assert [(row.metric, row.value) for row in mine] == [("initial_damage", 0.0)]
    assert not [row for run in handed for row in about(run, 3, "noise_50/layer")]
    assert one(rows, "noise_50/layer", "initial_damage").value > 0.005
    assert one(rows, "noise_50/layer", "area").value > 0.0
    assert not about(rows, 3, "equal_damage/layer"), "no noise costs anything there"
    assert about(rows, 3, "reinitialize/layer")


def test_damage_below_the_tolerance_is_omitted_and_logged() -> None:
    said: list[str] = []
    recipe = replace(RECIPE, tolerance=1e9)
    rows, _ = study(layers=[1, 5], treatments=["noise_50/layer"], recipe=recipe, cache=ResultCache(log=said.append))
    assert {row.metric for row in rows} == {"initial_damage"}
    assert said == [
        "Damage by noise of 50 % (layer trained) costs at most 1e+09 nats/token in layers 1 and 5, so there is "
        "nothing to recover from. The correlations omit these layers."
    ]


def test_the_rows_of_a_layer(measured: Study) -> None:
    rows, handed = measured
    mine = {(row.metric, row.against) for row in about(rows, 1, "reinitialize/model")}
    own = ("initial_damage", "steps", "area", "censored", "steps_to_original", "censored_original")
    assert mine == {("steps", "undamaged"), ("area", "undamaged"), *((metric, None) for metric in own)}
    assert {row.measure for row in rows} == {"recovery"}
    assert {row.measure for run in handed for row in run} == {RUNS}
    assert {f"{row.condition}/{row.variant}" for row in rows} == set(TREATMENTS)
    # Random models: one per seed, and one per seed and layer. Noise of any size does nothing to layer 3.
    assert len(handed) == SEEDS * (1 + 2 + 6 + 2)


def test_unreachable_equal_damage_is_logged() -> None:
    said: list[str] = []
    study(treatments=["equal_damage/layer"], layers=[3], seeds=1, cache=ResultCache(log=said.append))
    assert said == ["recovery omits equal_damage of layer 3, because no noise costs 0.1 nats/token (seed 0)"]


def test_model_is_unchanged_after_an_exception() -> None:
    model = planted().train()
    model.model.embed_tokens.requires_grad_(False)
    stack = load(model)
    before, grads = weight_hash(model), [parameter.requires_grad for parameter in model.parameters()]

    class StopError(Exception):
        pass

    def sink(rows: Sequence[Score]) -> None:
        raise StopError

    with pytest.raises(StopError):
        study(stack, layers=[2], treatments=["noise_50/model"], seeds=1, cache=ResultCache(sink=sink))
    assert weight_hash(model) == before
    assert [parameter.requires_grad for parameter in model.parameters()] == grads
    assert model.training
    assert all(parameter.grad is None for parameter in model.parameters())


@pytest.mark.slow
def test_interruption_loses_at_most_one_run(measured: Study) -> None:
    rows, handed = measured
    known = tuple(row for run in handed[:20] for row in run)
    again: list[list[Score]] = []
    ledger = ResultCache(known=known, sink=lambda rows: again.append(list(rows)))
    assert study(cache=ledger)[0] == rows
    assert again == handed[20:]
    ledger = ResultCache(known=known[:-1], sink=lambda rows: again.append(list(rows)))
    again.clear()
    study(cache=ledger, treatments=["noise_50/layer"], layers=[1])
    assert not again


@pytest.mark.parametrize("scope", ["layer", "model"])
def test_diverged_seed_is_censored(scope: str) -> None:
    recipe = replace(RECIPE, layer_rate=1e30, model_rate=1e30, max_grad_norm=1e9)
    rows, handed = study(layers=[1], treatments=[f"noise_50/{scope}"], recipe=recipe)
    assert one(rows, f"noise_50/{scope}", "censored").value == 1.0
    assert one(rows, f"noise_50/{scope}", "initial_damage").value > 0
    assert not [row for row in rows if row.metric.startswith("area")]
    assert all(run[-1].metric == "diverged" for run in handed)


@pytest.mark.slow
def test_recovery_is_correlated_with_ablation(measured: Study) -> None:
    effects = [Score("ablation", "skip", value, layer=layer) for layer, value in enumerate([2, 1, 0.5, 0, 0.6, 3])]
    rows, _ = study(layers=range(6), treatments=["noise_50/layer"], effects=[*effects, replace(effects[0], task="x")])
    metrics = {row.metric: row for row in rows if row.layer is None and row.against is None}
    assert metrics["layers"].value == 5, "layer 3 was not damaged"
    assert {"spearman", "spearman_given_damage", "spearman_published"} <= set(metrics)
    assert not [row for row in measured[0] if row.layer is None]


def test_correlations_use_damaged_layers() -> None:
    effects = [Score("ablation", "skip", value, layer=layer) for layer, value in enumerate([9, 1, 2, 3, 4, 5])]
    layers = [
        LayerRecovery(0, damaged=False),
        *(LayerRecovery(layer, 0.1 * layer, area) for layer, area in enumerate([1.0, 2.0, 3.0, 4.0, 5.0], start=1)),
    ]
    made = associations(("noise_50", "layer"), layers, effects, 0)
    rows = {row.metric: row for row in made if row.against is None}
    assert rows["layers"].value == 5
    assert rows["spearman"].value == 1.0
    assert rows["spearman_published"].value == pytest.approx(1 / 7), "layer 0 matters most, and recovers at once"
    assert rows["spearman_given_damage"].value == 0.0, "the damage explains all of it"


def test_unknown_initialization_omits_reinitialize(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(stack: Stack, seed: int) -> Stack:
        raise UnsupportedModelError("nobody wrote it down")

    monkeypatch.setattr(module, "make_random_init", refuse)
    said: list[str] = []
    rows, _ = study(
        layers=[1], treatments=["noise_50/layer", "reinitialize/layer"], seeds=1, cache=ResultCache(log=said.append)
    )
    assert {(row.condition, row.variant) for row in rows} == {("noise_50", "layer")}
    assert said == ["recovery omits the damage reinitialize: nobody wrote it down"]


def test_half_precision_is_trained_in_float32() -> None:
    stack = load(planted().bfloat16())
    before = weight_hash(stack.model)
    rows, _ = study(stack, layers=[1], treatments=["noise_50/layer"])
    assert one(rows, "noise_50/layer", "area").value > 0
    assert weight_hash(stack.model) == before


def test_invalid_arguments_are_rejected() -> None:
    with pytest.raises(MeasureError, match="layers must be between 0 and 5, got 6"):
        study(layers=[6])
    with pytest.raises(MeasureError, match="Unknown treatment 'noise_5/layer': did you mean noise_50/layer"):
        study(treatments=["noise_5/layer"])
    with pytest.raises(MeasureError, match="seeds must be at least 1"):
        study(seeds=0)
    with pytest.raises(MeasureError, match="every must be at least 1"):
        RecoveryRecipe(every=0)


WEIGHTS = {
    "wide": 3.0 + 2.0 * torch.randn(200, 300, generator=torch.Generator().manual_seed(0)),
    "narrow": (0.1 * torch.randn(100, 100, generator=torch.Generator().manual_seed(1))).bfloat16(),
    "gain": torch.ones(7),
}


def test_noise_has_the_standard_deviation_of_its_tensor() -> None:
    changed = add_noise(WEIGHTS, noise_direction(WEIGHTS, (0, 3)), 0.5)
    for name in ("wide", "narrow"):
        change = changed[name].double() - WEIGHTS[name].double()
        assert float(change.std()) == pytest.approx(0.5 * float(WEIGHTS[name].double().std()), rel=0.02)
        assert abs(float(change.mean())) < 0.02 * float(change.std()) + 0.02
    assert torch.equal(changed["gain"], WEIGHTS["gain"]), "a tensor without spread gets no noise"


def test_non_finite_weights_are_rejected() -> None:
    with pytest.raises(MeasureError, match="broken must be finite"):
        noise_direction({"broken": torch.tensor([[1.0, math.nan]])}, (0,))


@settings(deadline=None)
@given(st.floats(1e-3, 10.0), st.floats(0.5, 4.0), st.floats(0.01, 1.0))
def test_equal_scale_reaches_its_target(steepness: float, power: float, target: float) -> None:
    def damage(scale: float) -> float:
        return math.inf if scale > 50 else steepness * scale**power

    scale = find_equal_scale(damage, target, 0.01 * target)
    exact = (target / steepness) ** (1 / power)
    if scale is None:
        assert not 2.0**-11 < exact < 32.0
    else:
        assert damage(scale) == pytest.approx(target, rel=0.011)
