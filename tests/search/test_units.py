"""Costs, latency, one-shot sets and confirmation on a stack with a known truth."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from layerwise.checkpoint import save
from layerwise.errors import OptionError
from layerwise.gguf import GGUFFile
from layerwise.measure.cost import pass_time
from layerwise.measure.cost.pass_time import Phase, Setting
from layerwise.measure.language.evaluation_data import EvalData
from layerwise.plan import Plan
from layerwise.results.rows import Loss
from layerwise.search.budget import Budget
from layerwise.search.confirm import against_arms, losses_above, winners_curse
from layerwise.search.evaluator import GraphEvaluator
from layerwise.search.greedy import Space
from layerwise.search.one_shot import first_within, one_shot_plans, random_sets, skip_effects, turning
from layerwise.search.prices import Piece, PlanPrices, PriceTable, byte_table, measured
from layerwise.stack import Stack, load
from measure.conftest import reading, stack
from tier import first_fast

__all__ = ["reading", "stack"]

WHOLE = Plan.parse("0-5")


def space(limit: float) -> Space:
    return Space(6, ("drop",), lambda plan: float(len(plan.steps())), limit)


def test_budgets_are_one_limit_each() -> None:
    assert Budget.parse("layers = 0.75x").limit(32) == 24
    assert Budget.parse("bytes=1000").limit(5000) == 1000
    assert Budget(ms=12.5).limit(99) == 12.5
    assert Budget.parse(str(Budget(layers="0.5x"))) == Budget(layers="0.5x")
    for wrong in ({}, {"layers": 3, "ms": 4}, {"layers": -1}, {"ms": "fast"}):
        with pytest.raises(OptionError):
            Budget(**wrong)  # type: ignore[arg-type]


def test_prices_are_sums_over_steps_and_bytes_over_distinct_weights(stack: Stack) -> None:
    table = PriceTable(
        {(layer, half): 10.0 if half is None else 4.0 for layer in range(6) for half in (None, "attn", "mlp")}, 7
    )
    prices = PlanPrices(6, byte_table(stack), table)
    assert prices.of_plan(Plan.parse("0 1*2 2.attn"), "ms") == 7 + 30 + 4
    assert prices.of_plan(Plan.parse("0 1*2 2.attn"), "layers") == 3.5
    bytes_of = {text: prices.of_plan(Plan.parse(text), "bytes") for text in ("0-5", "0-4", "0-4 4", "0-4 4.mlp", "0")}
    assert bytes_of["0-4"] == bytes_of["0-4 4"] == bytes_of["0-4 4.mlp"] < bytes_of["0-5"]
    mlp, layer = (
        sum(weight.numel() * weight.element_size() for weight in module.parameters())
        for module in (stack.block(0).mlp, stack.block(1))
    )
    assert prices.of_plan(Plan.parse("0.attn"), "bytes") == bytes_of["0-5"] - 5 * layer - mlp
    assert bytes_of["0-5"] == sum(weight.numel() * weight.element_size() for weight in stack.model.parameters())


@pytest.mark.parametrize("kind", first_fast(["Q8_0", "F32"]))
@pytest.mark.parametrize("plan", ["0-3", "0 2 3", "0 Q4_0:1 2 Q8_0:3", "Q5_1:0-3 Q5_1:1"])
def test_the_bytes_of_a_gguf_file_are_those_of_the_file_that_is_written(plan: str, kind: str, tmp_path: Path) -> None:
    pytest.importorskip("gguf", reason="needs layerwise[gguf]")
    from checkpoint.gguf_models import write_llama

    own = load(write_llama(tmp_path / "in.gguf", 4, kind=kind))
    save(tmp_path / "in.gguf", plan, tmp_path / "out.gguf")
    sizes = {name: each.size for name, each in GGUFFile.open(tmp_path / "out.gguf").tensors.items()}
    repeated = [f"blk.{slot}." for slot in range(4, len(Plan.parse(plan).steps()))]
    once = sum(size for name, size in sizes.items() if not any(name.startswith(each) for each in repeated))
    assert PlanPrices.of(own).of_plan(Plan.parse(plan), "bytes") == once


@pytest.mark.parametrize("phase", ["prefill", "decode"])
def test_milliseconds_add_up_to_the_pass(stack: Stack, phase: Phase, monkeypatch: pytest.MonkeyPatch) -> None:
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
        table, times = measured(stack, Setting(phase, 1, 8), [Plan.parse("0-2")], repeats=3)
    finally:
        for handle in handles:
            handle.remove()
    expected: dict[Piece, float] = {(layer, None): 5.25 + layer for layer in range(6)}
    expected |= {(layer, "attn"): 3.25 + layer for layer in range(6)}  # each half keeps the norms
    expected |= {(layer, "mlp"): 2.25 for layer in range(6)}
    assert table.pieces == pytest.approx(expected)
    assert table.rest == pytest.approx(20)
    assert times[Plan.parse("0-2")] == pytest.approx(20 + 5.25 + 6.25 + 7.25)


def test_the_sets_of_a_score_are_as_large_as_the_limit_asks(stack: Stack, reading: EvalData) -> None:
    evaluator = GraphEvaluator(stack, [reading])
    effects = skip_effects(evaluator, space(4))
    arms = one_shot_plans(space(4), turning(stack, [reading]), effects)
    assert set(arms) == {"block_influence", "angular_distance", "sweep_effect", "deepest_keep_last"}
    assert all(len(plan.steps()) == 4 for plan in arms.values())
    assert arms["deepest_keep_last"] == Plan.parse("0-2 5")
    worst = sorted(effects, key=effects.__getitem__)[:2]
    assert set(range(6)) - arms["sweep_effect"].layers() == set(worst)
    gone = sorted(set(range(6)) - arms["angular_distance"].layers())
    assert gone[1] - gone[0] == 1
    assert len(random_sets(space(4), 50, 0)) == 15
    assert random_sets(space(4), 5, 1) == random_sets(space(4), 5, 1) != random_sets(space(4), 5, 2)
    assert first_within(space(0.5), [0, 1, 2, 3, 4, 5]) is None


def losses(effect: dict[str, float], documents: int = 40, seed: int = 0) -> list[Loss]:
    draw = np.random.default_rng(seed)
    hard = draw.normal(3, 0.5, documents)
    return [
        Loss(plan, "text", f"d{number}", 0, float(50 * (hard[number] + value + draw.normal(0, 0.05))), 50, 0)
        for plan, value in effect.items()
        for number in range(documents)
    ]


def test_what_a_plan_loses_has_an_interval_for_the_truth_and_one_for_another_text() -> None:
    skewed = [
        replace(row, nll=row.nll + 90.0 * (row.plan == "0-3" and row.document == "d1"))
        for row in losses({"0-5": 0.0, "0-3": 0.2})
    ]
    rows = losses_above(skewed, WHOLE, "report", seed=0)
    truth, again = (next(row for row in rows if row.metric == metric) for metric in ("delta_nll", "again"))
    assert (truth.plan, truth.task) == ("0-3", "report")
    assert truth.low < 0.2 < truth.high
    assert truth.high - truth.value > 1.2 * (truth.value - truth.low), "a document that loses much more than the others"
    assert again == replace(truth, metric="again", low=again.low, high=again.high, p=None, p_adjusted=None, mde=None)
    for bound, own in ((again.low, truth.low), (again.high, truth.high)):
        assert bound - truth.value == pytest.approx(2**0.5 * (own - truth.value))


def test_the_winners_curse_is_the_gap_between_independent_texts() -> None:
    plan = Plan.parse("0-3")
    search, report = losses({"0-5": 0.0, "0-3": 0.1}, seed=1), losses({"0-5": 0.0, "0-3": 0.3}, seed=2)
    (gap,) = winners_curse(search, report, WHOLE, plan)
    assert gap.low > 0.1
    assert gap.value == pytest.approx(0.2, abs=0.05)
    assert winners_curse(search[:0] + losses({"0-5": 0.0, "0-3": 0.1}, documents=3), report, WHOLE, plan) == []


def test_arms_are_compared_with_the_chosen_plan_and_corrected_together() -> None:
    effect = {"0-3": 0.2, "1-4": 0.5, "2-5": 0.205, "0 2-4": 0.9, "0 1 4 5": 0.1}
    arms = {name: Plan.parse(text) for name, text in {"a": "1-4", "b": "2-5", "c": "0-3", "d": "1-4"}.items()}
    random = [Plan.parse("0 2-4"), Plan.parse("0 1 4 5")]
    rows = against_arms(losses(effect), Plan.parse("0-3"), arms, random, "report", seed=0)
    above = {row.arm: row for row in rows if row.metric == "above_chosen"}
    assert set(above) == {"a", "b", "d", "random"}  # c chose the same plan
    assert above["a"].p_adjusted < 0.05
    assert replace(above["a"], arm="d") == above["d"]
    assert above["b"].p_adjusted > 0.05
    assert above["random"].value == pytest.approx(0.3, abs=0.05)
    (better,) = (row for row in rows if row.metric == "better")
    assert better.value == 0.5
