"""Evaluation rounds, costs, latency, one-shot sets and confirmation on a stack with planted effects."""

from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from layerwise.checkpoint import save
from layerwise.errors import MeasureError, OptionError
from layerwise.gguf import GGUFFile
from layerwise.measure.cost import pass_time
from layerwise.measure.cost.pass_time import Phase, Setting
from layerwise.measure.interventions.sweep import sweep
from layerwise.measure.language.evaluation_data import EvalData, piece_lengths, select_pieces
from layerwise.plan import Plan
from layerwise.results.rows import Loss
from layerwise.search.budget import Budget
from layerwise.search.confirm import compare_controls, compute_loss_changes, compute_selection_gap
from layerwise.search.costs import CostTable, Piece, PlanCosts, count_bytes, measure_milliseconds
from layerwise.search.evaluator import GraphEvaluator, WorstCaseEvaluator
from layerwise.search.greedy import Space, greedy
from layerwise.search.one_shot import (
    build_one_shot_plans,
    draw_random_sets,
    measure_skip_effects,
    measure_turning,
    skip_until_within,
)
from layerwise.search.rungs import RungSettings, split_rungs
from layerwise.stack import Stack, load
from measure.conftest import reading, stack
from tier import first_fast

__all__ = ["reading", "stack"]

WHOLE = Plan.parse("0-5")


def space(limit: float) -> Space:
    return Space(6, ("drop",), lambda plan: float(len(plan.steps())), limit)


def test_a_budget_has_exactly_one_limit() -> None:
    assert Budget.parse("layers = 0.75x").limit(32) == 24
    assert Budget.parse("bytes=1000").limit(5000) == 1000
    assert Budget(ms=12.5).limit(99) == 12.5
    assert Budget.parse(str(Budget(layers="0.5x"))) == Budget(layers="0.5x")
    for wrong in ({}, {"layers": 3, "ms": 4}, {"layers": -1}, {"ms": "fast"}):
        with pytest.raises(OptionError):
            Budget(**wrong)  # type: ignore[arg-type]


def test_costs_add_up_over_steps_and_bytes_over_distinct_weights(stack: Stack) -> None:
    table = CostTable(
        {(layer, half): 10.0 if half is None else 4.0 for layer in range(6) for half in (None, "attn", "mlp")}, 7
    )
    costs = PlanCosts(6, count_bytes(stack), table)
    assert costs.compute(Plan.parse("0 1*2 2.attn"), "ms") == 7 + 30 + 4
    assert costs.compute(Plan.parse("0 1*2 2.attn"), "layers") == 3.5
    bytes_of = {text: costs.compute(Plan.parse(text), "bytes") for text in ("0-5", "0-4", "0-4 4", "0-4 4.mlp", "0")}
    assert bytes_of["0-4"] == bytes_of["0-4 4"] == bytes_of["0-4 4.mlp"] < bytes_of["0-5"]
    mlp, layer = (
        sum(weight.numel() * weight.element_size() for weight in module.parameters())
        for module in (stack.block(0).mlp, stack.block(1))
    )
    assert costs.compute(Plan.parse("0.attn"), "bytes") == bytes_of["0-5"] - 5 * layer - mlp
    assert bytes_of["0-5"] == sum(weight.numel() * weight.element_size() for weight in stack.model.parameters())


@pytest.mark.parametrize("kind", first_fast(["Q8_0", "F32"]))
@pytest.mark.parametrize("plan", ["0-3", "0 2 3", "0 Q4_0:1 2 Q8_0:3", "Q5_1:0-3 Q5_1:1"])
def test_the_bytes_of_a_plan_match_the_written_gguf_file(plan: str, kind: str, tmp_path: Path) -> None:
    pytest.importorskip("gguf", reason="needs layerwise[gguf]")
    from checkpoint.gguf_models import write_llama

    own = load(write_llama(tmp_path / "in.gguf", 4, kind=kind))
    save(tmp_path / "in.gguf", plan, tmp_path / "out.gguf")
    sizes = {name: each.size for name, each in GGUFFile.open(tmp_path / "out.gguf").tensors.items()}
    repeated = [f"blk.{slot}." for slot in range(4, len(Plan.parse(plan).steps()))]
    once = sum(size for name, size in sizes.items() if not any(name.startswith(each) for each in repeated))
    assert PlanCosts.from_stack(own).compute(Plan.parse(plan), "bytes") == once


@pytest.mark.parametrize("phase", ["prefill", "decode"])
def test_layer_times_add_up_to_the_forward_pass(stack: Stack, phase: Phase, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(pass_time, "time", SimpleNamespace(perf_counter=lambda: now[0]))

    def lasts(module: torch.nn.Module, milliseconds: float) -> None:
        def advance(*_: object) -> None:
            now[0] += milliseconds / 1000

        handles.append(module.register_forward_hook(advance))

    handles: list[Any] = []
    try:
        lasts(stack.model.get_input_embeddings(), 7)
        lasts(stack.model.get_output_embeddings(), 13)
        for layer in range(6):
            block = stack.block(layer)
            lasts(block.input_layernorm, 0.25)
            lasts(block.self_attn, 3 + layer)
            lasts(block.mlp, 2)
        table, times = measure_milliseconds(stack, Setting(phase, 1, 8), [Plan.parse("0-2")], repeats=3)
    finally:
        for handle in handles:
            handle.remove()
    expected: dict[Piece, float] = {(layer, None): 5.25 + layer for layer in range(6)}
    expected |= {(layer, "attn"): 3.25 + layer for layer in range(6)}  # each half keeps the norms
    expected |= {(layer, "mlp"): 2.25 for layer in range(6)}
    assert table.pieces == pytest.approx(expected)
    assert table.rest == pytest.approx(20)
    assert times[Plan.parse("0-2")] == pytest.approx(20 + 5.25 + 6.25 + 7.25)


def test_one_shot_sets_skip_as_few_layers_as_the_limit_requires(stack: Stack, reading: EvalData) -> None:
    evaluator = GraphEvaluator(stack, [reading])
    effects = measure_skip_effects(evaluator, space(4))
    controls = build_one_shot_plans(space(4), measure_turning(stack, [reading]), effects)
    assert set(controls) == {"block_influence", "angular_distance", "sweep_effect", "deepest_keep_last"}
    assert all(len(plan.steps()) == 4 for plan in controls.values())
    assert controls["deepest_keep_last"] == Plan.parse("0-2 5")
    worst = sorted(effects, key=effects.__getitem__)[:2]
    assert set(range(6)) - controls["sweep_effect"].layers() == set(worst)
    gone = sorted(set(range(6)) - controls["angular_distance"].layers())
    assert gone[1] - gone[0] == 1
    assert len(draw_random_sets(space(4), 50, 0)) == 15
    assert draw_random_sets(space(4), 5, 1) == draw_random_sets(space(4), 5, 1) != draw_random_sets(space(4), 5, 2)
    assert skip_until_within(space(0.5), [0, 1, 2, 3, 4, 5]) is None


def losses(effect: dict[str, float], documents: int = 40, seed: int = 0) -> list[Loss]:
    draw = np.random.default_rng(seed)
    hard = draw.normal(3, 0.5, documents)
    return [
        Loss(plan, "text", f"d{number}", 0, float(50 * (hard[number] + value + draw.normal(0, 0.05))), 50, 0)
        for plan, value in effect.items()
        for number in range(documents)
    ]


def test_a_loss_change_has_a_confidence_and_a_prediction_interval() -> None:
    skewed = [
        replace(row, nll=row.nll + 90.0 * (row.plan == "0-3" and row.document == "d1"))
        for row in losses({"0-5": 0.0, "0-3": 0.2})
    ]
    rows = compute_loss_changes(skewed, WHOLE, "report", seed=0)
    truth, again = (next(row for row in rows if row.metric == metric) for metric in ("delta_nll", "again"))
    assert (truth.plan, truth.task) == ("0-3", "report")
    assert truth.low < 0.2 < truth.high
    assert truth.high - truth.value > 1.2 * (truth.value - truth.low), "a document that loses much more than the others"
    assert again == replace(truth, metric="again", low=again.low, high=again.high, p=None, p_adjusted=None, mde=None)
    for bound, own in ((again.low, truth.low), (again.high, truth.high)):
        assert bound - truth.value == pytest.approx(2**0.5 * (own - truth.value))


def test_the_selection_gap_is_the_difference_between_independent_texts() -> None:
    plan = Plan.parse("0-3")
    search, report = losses({"0-5": 0.0, "0-3": 0.1}, seed=1), losses({"0-5": 0.0, "0-3": 0.3}, seed=2)
    (gap,) = compute_selection_gap(search, report, WHOLE, plan)
    assert gap.low > 0.1
    assert gap.value == pytest.approx(0.2, abs=0.05)
    assert compute_selection_gap(search[:0] + losses({"0-5": 0.0, "0-3": 0.1}, documents=3), report, WHOLE, plan) == []


def test_controls_are_compared_with_the_selected_plan_and_corrected_together() -> None:
    effect = {"0-3": 0.2, "1-4": 0.5, "2-5": 0.205, "0 2-4": 0.9, "0 1 4 5": 0.1}
    controls = {name: Plan.parse(text) for name, text in {"a": "1-4", "b": "2-5", "c": "0-3", "d": "1-4"}.items()}
    random = [Plan.parse("0 2-4"), Plan.parse("0 1 4 5")]
    rows = compare_controls(losses(effect), Plan.parse("0-3"), controls, random, "report", seed=0)
    above = {row.variant: row for row in rows if row.metric == "above_chosen"}
    assert set(above) == {"a", "b", "d", "random"}  # c chose the same plan
    assert above["a"].p_adjusted < 0.05
    assert replace(above["a"], variant="d") == above["d"]
    assert above["b"].p_adjusted > 0.05
    assert above["random"].value == pytest.approx(0.3, abs=0.05)
    (better,) = (row for row in rows if row.metric == "better")
    assert better.value == 0.5


ROUNDS = [
    ("0-5", ["0-5", "1-5", "0 2-5", "0-2 4 5", "0-4"]),
    ("0 2-5", ["0 3-5", "0 2 3 5", "1-5", "0 2-4", "0 (2|3):sum 4 5", "0 2 3 4*2 5", "0 2-5"]),
    ("0 2 3 5", ["0 2.mlp 3 5", "5 2 3 0", "0 2 3", "1 2 3 5"]),
]


def plans(texts: list[str]) -> list[Plan]:
    return [Plan.parse(text) for text in texts]


def evaluated(evaluator: GraphEvaluator, rungs: int) -> dict[tuple[str, int], list[float]]:
    return {
        (text, rung): evaluator.evaluate(plans([text]), rung, Plan.parse("0-5"))[0].tolist()
        for rung in range(rungs)
        for _, texts in ROUNDS
        for text in texts
    }


@pytest.mark.parametrize("max_bytes", [1 << 30, 0])
def test_losses_match_a_sweep_for_any_cache_size(stack: Stack, reading: EvalData, max_bytes: int) -> None:
    rungs = split_rungs(reading, 0)
    rows: list[Loss] = []
    evaluator = GraphEvaluator(stack, rungs, sink=rows.extend, prefix="search/", max_bytes=max_bytes)
    for parent, texts in ROUNDS:
        for rung in range(len(rungs)):
            evaluator.evaluate(plans(texts), rung, Plan.parse(parent))
    for data in rungs:
        for row in sweep(stack, [text for _, texts in ROUNDS for text in texts], data):
            same = [
                each for each in rows if (each.plan, each.document, each.window) == (row.plan, row.document, row.window)
            ]
            assert [each.nll for each in same] == [row.nll], row.plan
            assert same[0].task == f"search/{row.task}"


def test_stored_losses_are_not_computed_again(stack: Stack, reading: EvalData) -> None:
    rungs = split_rungs(reading, 0)
    rows: list[Loss] = []
    evaluator = GraphEvaluator(stack, rungs, sink=rows.extend)
    for parent, texts in ROUNDS * 2:
        for rung in range(len(rungs)):
            evaluator.evaluate(plans(texts), rung, Plan.parse(parent))
    counts = Counter((row.plan, row.task, row.document, row.window) for row in rows)
    assert set(counts.values()) == {1}
    again: list[Loss] = []
    resumed = GraphEvaluator(stack, rungs, sink=again.extend, stored=rows)
    assert evaluated(resumed, len(rungs)) == evaluated(evaluator, len(rungs))
    assert again == []
    assert resumed.spent.layer_tokens == 0


def test_rounds_have_a_known_cost_and_rows_of_every_rung(stack: Stack, reading: EvalData) -> None:
    order, windows = piece_lengths(reading, min_documents=1), len(reading.windows)
    rungs = [select_pieces(reading, list(order)[start::2]) for start in (0, 1)]
    evaluator, (whole, other) = GraphEvaluator(stack, rungs), plans(["0-5", "1-5"])
    evaluator.evaluate([whole], 0, whole)
    read = len(rungs[0].windows)
    for plan, count in ((whole, read), (other, 0)):
        with pytest.raises(MeasureError, match=rf"must be evaluated on all {windows} windows .* got {count}"):
            evaluator.losses([plan])
    evaluator.evaluate([whole], 1, whole)
    assert sum(row.tokens for row in evaluator.losses([whole])) == sum(window.scored for window in reading.windows)

    rungs = split_rungs(reading, 0)
    evaluator = GraphEvaluator(stack, rungs)
    counted = WorstCaseEvaluator(evaluator.tokens, evaluator.batch_tokens)
    for parent, texts in ROUNDS:
        for rung in range(len(rungs)):
            evaluator.evaluate(plans(texts), rung, Plan.parse(parent))
            counted.evaluate(plans(texts), rung, Plan.parse(parent))
    assert evaluator.spent.layer_tokens == counted.spent.layer_tokens
    assert evaluator.spent.head_tokens == counted.spent.head_tokens


@pytest.mark.parametrize(("limit", "width"), [(2, 1), (3, 2), (4, 3)])
def test_no_search_costs_more_than_the_worst_case(stack: Stack, reading: EvalData, limit: int, width: int) -> None:
    rungs = split_rungs(reading, 0)
    space = Space(6, ("drop",), lambda plan: float(len(plan.steps())), limit)
    evaluator = GraphEvaluator(stack, rungs)
    measure_skip_effects(evaluator, space)
    list(greedy(evaluator, space, width=width))
    worst = WorstCaseEvaluator(evaluator.tokens, evaluator.batch_tokens)
    measure_skip_effects(worst, space)
    list(greedy(worst, space, width=width, settings=RungSettings(alpha=0.0)))
    assert evaluator.spent.layer_tokens <= worst.spent.layer_tokens
    assert evaluator.spent.head_tokens <= worst.spent.head_tokens


def test_a_plan_with_non_finite_loss_ranks_last(
    stack: Stack, reading: EvalData, monkeypatch: pytest.MonkeyPatch
) -> None:
    apply = stack.apply

    def broken(layer: int, state: torch.Tensor, *rest: object) -> torch.Tensor:
        after = apply(layer, state, *rest)  # type: ignore[arg-type]
        return after * float("nan") if layer == 5 and state is not None and broken.on else after  # type: ignore[attr-defined]

    broken.on = False  # type: ignore[attr-defined]
    monkeypatch.setattr(stack, "apply", broken)
    rows: list[Loss] = []
    evaluator = GraphEvaluator(stack, [reading], sink=rows.extend)
    evaluator.evaluate(plans(["0-5"]), 0, Plan.parse("0-5"))
    broken.on = True  # type: ignore[attr-defined]
    worse = evaluator.evaluate(plans(["1-5", "0-4"]), 0, Plan.parse("0-5"))
    assert worse[0].min() > 1e5 > worse[1].max()
    assert "1-5" not in {row.plan for row in rows}
