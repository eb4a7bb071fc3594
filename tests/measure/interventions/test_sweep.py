from collections.abc import Sequence

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from conftest import tiny_llama
from layerwise.errors import MeasureError, PlanError
from layerwise.measure.interventions.sweep import CostEstimate, CostMeter, add_identity, estimate_cost, sweep
from layerwise.measure.language.evaluation_data import EvalData
from layerwise.measure.language.loss import window_losses
from layerwise.plan import Plan, families
from layerwise.results.rows import Loss
from layerwise.stack import load
from layerwise.stack.load import weight_hash
from measure.language.test_loss import ragged_batch
from stack.random_plans import plans
from tier import by_tier

STACK = load(tiny_llama())
BATCH = ragged_batch()
READING = EvalData("ragged", "0", 12, "next_token", (BATCH,))


def one_at_a_time(plan: Plan) -> list[Loss]:
    with torch.inference_mode():
        captured = STACK.capture(**BATCH.inputs)
        found = window_losses(STACK, STACK.run(plan, captured), BATCH)
    return [
        Loss(str(plan), window.task, window.document, window.index, row.nll, row.tokens, row.hits)
        for window, row in zip(BATCH.windows, found, strict=True)
    ]


@given(st.lists(plans(6), min_size=1, max_size=5))
@settings(max_examples=by_tier(fast=3, nightly=40), deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_rows_match_one_plan_at_a_time(wanted: list[Plan]) -> None:
    rows = sweep(STACK, wanted, READING)
    for plan in add_identity(STACK, wanted):
        assert [row for row in rows if row.plan == str(plan)] == one_at_a_time(plan)


@pytest.mark.parametrize(
    ("name", "heads", "evaluations"),
    [
        # Six layers, each skipped once, and the identity: 5 + 4 + 3 + 2 + 1 + 0 behind the gaps, plus 6.
        ("leave_one_out", 7, 15 + 6),
        # Each layer at each of five types: that layer and those behind it; the prefix is the identity's.
        ("bits", 31, 5 * 21 + 6),
    ],
)
def test_layer_evaluations_match_the_bound(name: str, heads: int, evaluations: int) -> None:
    members = families.FAMILIES[name](STACK.depth)
    if "bits" in name:
        pytest.importorskip("gguf", reason="needs the package gguf: pip install 'layerwise[gguf]'")
    before = weight_hash(STACK.model)
    seen: list[tuple[CostMeter, CostEstimate]] = []
    calls = 0
    apply = STACK.apply

    def counting(*arguments: object) -> torch.Tensor:
        nonlocal calls
        calls += 1
        return apply(*arguments)

    STACK.apply = counting
    try:
        sweep(STACK, members, READING, progress=lambda meter, due: seen.append((meter, due)))
    finally:
        del STACK.apply
    due = seen[-1][1]
    assert calls == due.evaluations == evaluations
    assert weight_hash(STACK.model) == before
    assert seen[-1][0].layer_tokens == due.layer_tokens == calls * BATCH.size
    assert seen[-1][0].head_tokens == due.head_tokens == heads * BATCH.size
    assert seen[-1][0].seconds_left(due) == 0


def test_finished_plans_are_not_computed_again() -> None:
    members = families.leave_one_out(STACK.depth)
    whole = sweep(STACK, members, READING)
    texts = [str(plan) for plan in add_identity(STACK, members)]
    done = frozenset(texts[:4])
    rest = sweep(STACK, members, READING, finished=lambda task, document, window: done)
    assert {row.plan for row in rest} == set(texts[4:])
    assert sorted(map(repr, rest)) == sorted(repr(row) for row in whole if row.plan not in done)
    nothing = estimate_cost(
        STACK, add_identity(STACK, members), READING, lambda task, document, window: frozenset(texts)
    )
    assert (nothing.layer_tokens, nothing.head_tokens) == (0, 0)


def test_partial_batches_give_the_missing_windows() -> None:
    first = BATCH.windows[0].document
    rows = sweep(
        STACK, [], READING, finished=lambda task, document, window: frozenset({"0-5"} if document == first else ())
    )
    assert {row.document for row in rows} == {window.document for window in BATCH.windows} - {first}


@pytest.mark.parametrize("kept", [1, 2, 4])
def test_stopped_sweep_has_the_original_model(kept: int) -> None:
    rows: list[Loss] = []

    def sink(fresh: Sequence[Loss]) -> None:
        rows.extend(fresh)
        if len({row.plan for row in rows}) == kept:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sweep(STACK, families.leave_one_out(STACK.depth), READING, sink=sink)
    assert rows[0].plan == str(Plan.identity(STACK.depth))
    assert len({row.plan for row in rows}) == kept


def test_non_finite_plan_is_named_and_other_rows_are_kept() -> None:
    kept: list[Loss] = []
    overflow = Plan.parse("0 (1|2):gain=1e39 3-5")
    with pytest.raises(MeasureError, match=r"1 of 3 plans \(first '0 \(1\|2\):gain=1e\+39 3-5'"):
        sweep(STACK, [overflow, Plan.parse("0-2 4-5")], READING, sink=kept.extend)
    assert {row.plan for row in kept} == {"0-5", "0-2 4 5"}


def test_non_finite_original_model_is_rejected() -> None:
    model = tiny_llama()
    stack = load(model)
    with torch.no_grad():
        model.model.norm.weight.fill_(float("nan"))
    with pytest.raises(MeasureError, match="original model"):
        sweep(stack, [], READING)


def test_plan_of_another_depth_is_rejected_before_running() -> None:
    with pytest.raises(PlanError, match="the model has 6 layers"):
        sweep(STACK, [Plan.parse("0-7")], READING)
