from typing import Any

import pytest
import torch

from layerwise.data.batches import AnyBatch
from layerwise.errors import UnsupportedModelError
from layerwise.measure.interventions import ablation as module
from layerwise.measure.interventions import intervention
from layerwise.measure.interventions.ablation import ablation, ablation_losses
from layerwise.measure.interventions.intervention import ResultCache
from layerwise.measure.language.evaluation_data import EvalData, split
from layerwise.measure.language.loss import window_losses
from layerwise.plan import Plan, Sublayer
from layerwise.results import Score
from layerwise.stack import Stack, load
from layerwise.stack.weights import layer_weights
from measure.by_layer import by_layer
from measure.planted_models import own_text, planted
from tier import first_fast

Measured = tuple[Stack, EvalData, list[Score]]

DEPTH = 6


@pytest.fixture(scope="module")
def idle() -> Measured:
    stack = load(planted(identity=[3], depth=DEPTH))
    reading = own_text(stack, windows=24, length=12)
    return stack, reading, ablation(stack, reading)


def test_identity_layer_has_no_effect(idle: Measured) -> None:
    _, _, scores = idle
    for metric in ("skip", "mean_ablate"):
        found = by_layer(scores, metric)
        for about in (3, (3, "attn"), (3, "mlp")):
            assert found[about].value == pytest.approx(0.0, abs=1e-6)
            assert found[about].low == pytest.approx(0.0, abs=1e-6)
        assert all(found[layer].value > 0.05 for layer in range(DEPTH) if layer != 3)


def test_every_intervention_has_rows_and_a_null(idle: Measured) -> None:
    _, _, scores = idle
    layers: set[Any] = set(range(DEPTH))
    halves = {(layer, part) for layer in range(DEPTH) for part in ("attn", "mlp")}
    wanted = {
        "skip": layers | halves,
        "mean_ablate": layers | halves,
        "neighbor_copy": layers,
        "random": layers,
        "neighbor_average": layers - {0, 5},
    }
    for metric, about in wanted.items():
        assert set(by_layer(scores, metric)) == about
        nulls = by_layer(scores, metric, against="no_effect")
        assert set(nulls) == about
        assert all(score.value == 0 and score.low == -(score.high or 0) for score in nulls.values())
    assert by_layer(scores, "nll")[None].value > 0


def test_sublayers_are_ablated_separately(idle: Measured) -> None:
    stack, reading, _ = idle
    losses = {(row.plan, row.document): row.nll for row in ablation_losses(stack, reading)}
    with torch.inference_mode():
        for part, left in (("attn", "mlp"), ("mlp", "attn")):
            batch = reading.batches[0]
            logits = stack.logits(Plan.parse(f"0 1 2.{left} 3-5"), **batch.inputs)
            for row, window in enumerate(batch.windows):
                targets = batch.targets[row][batch.scored[row]]
                nll = torch.nn.functional.cross_entropy(logits[row][batch.scored[row]], targets, reduction="sum")
                assert losses[f"2=skip.{part}", window.document] == pytest.approx(nll.item(), rel=1e-4, abs=1e-4)


@pytest.mark.parametrize("part", first_fast(["attn", None]))
def test_mean_ablation_uses_held_out_text(idle: Measured, part: Sublayer | None) -> None:
    stack, reading, _ = idle
    key = "2=mean_ablate" + (f".{part}" if part else "")
    losses = {(row.plan, row.document): row.nll for row in ablation_losses(stack, reading)}
    first, second = split(reading, 0)
    for judged, other in ((first, second), (second, first)):
        with torch.inference_mode():
            mean = torch.cat([_added(stack, batch, part).flatten(0, 1) for batch in other.batches]).mean(dim=0)
            for batch in judged.batches:
                captured = stack.capture(**batch.inputs)
                before = stack.run(Plan.identity(2), captured)
                held = before + mean
                if part is not None:  # the other branch goes on from what the first has left
                    held = held + stack.block(2).mlp(stack.block(2).post_attention_layernorm(held))
                for layer in range(3, DEPTH):
                    held = stack.apply(layer, held, captured)
                for window, loss in zip(batch.windows, window_losses(stack, held, batch), strict=True):
                    assert losses[key, window.document] == pytest.approx(loss.nll, rel=1e-5)


def _added(stack: Stack, batch: AnyBatch, part: Sublayer | None) -> torch.Tensor:
    captured = stack.capture(**batch.inputs)
    before = stack.run(Plan.identity(2), captured)
    return stack.apply(2, before, captured, part) - before


def test_single_window_has_no_mean_ablation() -> None:
    stack = load(planted(depth=DEPTH))
    said: list[str] = []
    rows = ablation_losses(stack, own_text(stack, windows=1, length=12), cache=ResultCache(log=said.append))
    assert not any("mean_ablate" in row.plan for row in rows)
    assert "2=skip" in {row.plan for row in rows}
    assert [text for text in said if "the other half" in text and "--max-length" in text]


def test_copy_of_an_equal_neighbor_changes_nothing() -> None:
    """Layers 2 and 3 are equal."""
    stack = load(planted(copies=[3], depth=DEPTH))
    reading = own_text(stack, windows=16, length=12)
    found = by_layer(ablation(stack, reading), "neighbor_copy")
    assert found[3].value == 0.0
    assert found[4].value > 0.05
    batch = reading.batches[0]
    with torch.inference_mode():
        straight = stack.logits(Plan.identity(DEPTH), **batch.inputs)
        assert torch.equal(stack.logits(Plan.parse("0 1 3 2 4 5"), **batch.inputs), straight)


def test_random_weights_have_the_norm_of_the_layer(monkeypatch: pytest.MonkeyPatch) -> None:

    stack = load(planted(depth=DEPTH))
    reading = own_text(stack, windows=8, length=12)
    drawn: dict[int, dict[str, torch.Tensor]] = {}
    real = intervention.apply_with

    def watched(stack, layer, weights, state, captured):  # type: ignore[no-untyped-def]
        if any(not torch.equal(value, layer_weights(stack, layer)[name]) for name, value in weights.items()):
            drawn.setdefault(layer, dict(weights))
        return real(stack, layer, weights, state, captured)

    monkeypatch.setattr(intervention, "apply_with", watched)
    module.intervention_losses(
        stack, [each for each, condition in module._list_conditions(stack, 0) if condition.metric == "random"], reading
    )
    own = layer_weights(stack, 4)
    assert set(drawn[4]) == {name for name, value in own.items() if value.ndim == 2}
    for name, value in drawn[4].items():
        assert value.norm().item() == pytest.approx(own[name].norm().item(), rel=1e-5)
        assert abs(torch.nn.functional.cosine_similarity(value.flatten(), own[name].flatten(), dim=0).item()) < 0.2


def test_unsplit_layers_are_skipped(monkeypatch: pytest.MonkeyPatch) -> None:

    def refuses(*_: object) -> None:
        raise UnsupportedModelError("cannot be split")

    monkeypatch.setattr(Stack, "branches", refuses)
    stack = load(planted(depth=4))
    said: list[str] = []
    scores = ablation(stack, own_text(stack, windows=12, length=10), cache=ResultCache(log=said.append))
    assert set(by_layer(scores, "skip")) == {0, 1, 2, 3}
    assert len(said) == 1
    assert "cannot be split" in said[0]
