import pytest
import torch

from layerwise.errors import MeasureError
from layerwise.measure.interventions import intervention
from layerwise.measure.interventions.intervention import (
    Apply,
    CleanBatch,
    Intervention,
    InterventionContext,
    JointIntervention,
    ResultCache,
    intervention_losses,
)
from layerwise.measure.interventions.sweep import sweep
from layerwise.measure.language.evaluation_data import EvalData
from layerwise.plan import Plan, edits
from layerwise.results import Loss
from layerwise.stack import Stack

DEPTH = 6


def skip(layer: int) -> Intervention:
    return Intervention(layer, "skip", lambda scene: lambda one: one.state)


def counted_calls(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> tuple[list[int], list[object]]:
    applied: list[int] = []
    judged: list[object] = []
    apply, losses = stack.apply, intervention.window_losses
    monkeypatch.setattr(stack, "apply", lambda layer, *rest: applied.append(layer) or apply(layer, *rest))
    monkeypatch.setattr(intervention, "window_losses", lambda *of: judged.append(of) or losses(*of))
    return applied, judged


def test_skipping_a_layer_matches_the_plan_without_it(stack: Stack, reading: EvalData) -> None:
    found = {(row.plan, row.document): row.nll for row in intervention_losses(stack, [skip(2), skip(5)], reading)}
    plans = {f"{layer}=skip": edits.skip(Plan.identity(DEPTH), layer) for layer in (2, 5)}
    for row in sweep(stack, plans.values(), reading):
        key = next((key for key, plan in plans.items() if str(plan) == row.plan), row.plan)
        assert found.pop((key, row.document)) == row.nll
    assert not found


def test_common_prefixes_are_shared(stack: Stack, reading: EvalData, monkeypatch: pytest.MonkeyPatch) -> None:
    applied, judged = counted_calls(stack, monkeypatch)
    shares: list[float] = []
    intervention_losses(stack, [skip(layer) for layer in range(DEPTH)], reading, ResultCache(progress=shares.append))
    assert (shares, shares[-1]) == (sorted(shares), 1.0)
    assert len(applied) == len(reading.batches) * (DEPTH + DEPTH * (DEPTH - 1) // 2)
    assert len(judged) == len(reading.batches) * (DEPTH + 1)


def test_intervention_prepares_once_from_clean_states(stack: Stack, reading: EvalData) -> None:
    seen: list[tuple[int, list[CleanBatch]]] = []

    def prepare(scene: InterventionContext) -> Apply:
        seen.append((scene.layer, list(scene.clean)))
        return lambda one: one.state

    intervention_losses(stack, [Intervention(3, "watch", prepare)], reading)
    ((layer, clean),) = seen
    assert layer == 3
    with torch.inference_mode():
        for batch, one in zip(reading.batches, clean, strict=True):
            captured = stack.capture(**batch.inputs)
            assert torch.equal(one.state, stack.run(Plan.identity(3), captured))
            assert one.counted.shape == one.state.shape[:2]


def test_skipping_a_set_matches_the_plan_without_it(
    stack: Stack, reading: EvalData, monkeypatch: pytest.MonkeyPatch
) -> None:
    applied, _ = counted_calls(stack, monkeypatch)
    chosen = [skip(1), JointIntervention("both", (skip(1), skip(4))), skip(4)]
    rows = intervention_losses(stack, chosen, reading)
    assert len(applied) == len(reading.batches) * (6 + 4 + 1 + 1)
    plans = {"0-5": "0-5", "1=skip": "0 2-5", "both": "0 2 3 5", "4=skip": "0-3 5"}
    assert list(dict.fromkeys(row.plan for row in rows)) == ["0-5", "1=skip", "both", "4=skip"]
    alone = {(row.plan, row.document): row.nll for row in sweep(stack, plans.values(), reading)}
    assert all(alone[str(Plan.parse(plans[row.plan])), row.document] == row.nll for row in rows)


def test_set_with_an_unsupported_layer_is_omitted(stack: Stack, reading: EvalData) -> None:
    def refuses(scene: InterventionContext) -> Apply:
        raise MeasureError("not this layer")

    never = Intervention(4, "never", refuses)
    chosen = [skip(1), JointIntervention("both", (skip(1), never)), never]
    said: list[str] = []
    rows = intervention_losses(stack, chosen, reading, ResultCache(log=said.append))
    assert {row.plan for row in rows} == {"0-5", "1=skip"}
    assert said == ["not this layer"]


def test_stored_rows_are_not_computed_again(stack: Stack, reading: EvalData, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[Loss] = []
    first = intervention_losses(stack, [skip(1), skip(4)], reading, ResultCache(sink=written.extend))
    assert sorted(map(repr, first)) == sorted(map(repr, written))

    def refuses(scene: InterventionContext) -> Apply:
        raise AssertionError("a known intervention was prepared")

    again: list[Loss] = []
    known = [Intervention(1, "skip", refuses), Intervention(4, "skip", refuses), skip(2)]
    second = intervention_losses(stack, known, reading, ResultCache(known=tuple(written), sink=again.extend))
    assert {row.plan for row in again} == {"2=skip"}
    assert set(first) < set(second)
    monkeypatch.setattr(stack, "capture", refuses)
    assert set(intervention_losses(stack, known[:2], reading, ResultCache(known=tuple(written)))) == set(first)


def test_resumed_intervention_matches_an_uninterrupted_one(stack: Stack, reading: EvalData) -> None:
    whole = intervention_losses(stack, [skip(1)], reading)
    half = tuple(whole[::2])
    fresh: list[Loss] = []
    again = intervention_losses(stack, [skip(1)], reading, ResultCache(known=half, sink=fresh.extend))
    assert again == whole
    assert set(fresh) == set(whole) - set(half)


def test_non_finite_interventions_are_omitted_and_logged_once(stack: Stack, reading: EvalData) -> None:
    def explodes(scene: InterventionContext) -> Apply:
        return lambda one: one.state * torch.inf

    said: list[str] = []
    rows = intervention_losses(
        stack, [Intervention(2, "bang", explodes), skip(3)], reading, ResultCache(log=said.append)
    )
    assert {row.plan for row in rows} == {"0-5", "3=skip"}
    assert len(said) == 1
    assert "2=bang" in said[0]
