"""Perturbation curves: gates exact at both ends, changes of the stated size, and invalid points."""

from collections.abc import Sequence
from typing import Any

import pytest
import torch

from layerwise.measure.contrasts.contrast import PlanEffects
from layerwise.measure.interventions.intervention import Intervention, ResultCache, intervention_losses
from layerwise.measure.interventions.perturbations import (
    STRATEGIES,
    _gated_point,
    joint_losses,
    perturbation_curves,
)
from layerwise.measure.interventions.sweep import sweep
from layerwise.measure.language.evaluation_data import EvalData
from layerwise.plan import Plan
from layerwise.plan.checks import SUBLAYERS, Sublayer
from layerwise.results.rows import Loss, Score
from layerwise.results.selection import Rows
from layerwise.stack import Stack, load
from layerwise.studies.diagnose.contrasts import JOINT, select_redundant_layers
from layerwise.studies.diagnose.contrasts import contrast_joint_changes as contrasted
from measure.planted_models import own_text, planted

STACK = load(planted(identity=[3]))
READING = own_text(STACK)


@pytest.fixture(scope="module")
def measured() -> list[Score]:
    return perturbation_curves(STACK, READING, sizes=(0.1, 0.5, 1.0), alphas=(0.0, 0.5, 1.0, 1.1))


def one(rows: Sequence[Score], layer: int, condition: str, strength: float, **columns: Any) -> Score:
    about = {"part": None, "against": None, **columns}
    (found,) = Rows(rows).where(layer=layer, condition=condition, strength=strength, **about)
    return found


def losses_of(interventions: Sequence[Intervention]) -> dict[str, dict[tuple[str, int], float]]:
    return by_plan(intervention_losses(STACK, interventions, READING))


def by_plan(rows: Sequence[Loss]) -> dict[str, dict[tuple[str, int], float]]:
    found: dict[str, dict[tuple[str, int], float]] = {}
    for row in rows:
        found.setdefault(row.plan, {})[row.document, row.window] = row.nll
    return found


@pytest.mark.parametrize("part", [None, *SUBLAYERS])
def test_an_open_gate_changes_nothing_at_all(part: Sublayer | None) -> None:
    point = _gated_point(2, part, 1.0)
    losses = losses_of([point.intervention])
    assert losses[point.intervention.key] == losses[str(Plan.identity(6))]


@pytest.mark.parametrize(("part", "plan"), [(None, "0-1 3-5"), ("attn", "0-1 2.mlp 3-5"), ("mlp", "0-1 2.attn 3-5")])
def test_a_closed_gate_is_the_plan_without_the_layer(part: Sublayer | None, plan: str) -> None:
    point = _gated_point(2, part, 0.0)
    losses = losses_of([point.intervention])[point.intervention.key]
    swept = by_plan(sweep(STACK, [Plan.parse(plan)], READING))[str(Plan.parse(plan))]
    assert losses == pytest.approx(swept, rel=1e-6)


def test_a_half_open_gate_is_half_the_update() -> None:
    point = _gated_point(2, None, 0.5)
    halfway = losses_of([point.intervention])[point.intervention.key]
    doubled = load(planted(identity=[3]))
    block = doubled.model.get_submodule("model.layers.2")

    def halve(module: torch.nn.Module, args: tuple[torch.Tensor, ...], output: torch.Tensor) -> torch.Tensor:
        return args[0] + 0.5 * (output - args[0])

    handle = block.register_forward_hook(halve)
    by_hook = by_plan(sweep(doubled, [], READING))["0-5"]
    handle.remove()
    assert halfway == pytest.approx(by_hook, rel=1e-5)


def test_every_point_has_its_row_and_its_null(measured: list[Score]) -> None:
    for layer in range(6):
        for strategy in set(STRATEGIES) - {"predict"}:
            assert {0.1, 0.5, 1.0} <= set(Rows(measured).where(layer=layer, condition=strategy).axis("strength"))
        for part in (None, "attn", "mlp"):
            row = one(measured, layer, "gate", 0.5, part=part)
            assert row.low <= row.value <= row.high
            null = one(measured, layer, "gate", 0.5, part=part, against="no_effect")
            assert (null.value, null.low) == (0.0, -null.high)
    assert {row.task for row in measured} == {"all"}
    keys = [row.key for row in measured]
    assert len(keys) == len(set(keys))


def test_without_its_matrices_a_layer_is_skipped(measured: list[Score]) -> None:
    for layer in range(6):
        gone, skipped = one(measured, layer, "scale", 1.0), one(measured, layer, "gate", 0.0)
        assert gone.value == pytest.approx(skipped.value, abs=1e-6)
        assert one(measured, layer, "low_rank", 1.0).value == pytest.approx(skipped.value, abs=1e-6)


DEPTH = 6
SET = (2, 3)


def test_the_set_costs_little_one_by_one_and_has_two_layers_at_least() -> None:
    assert select_redundant_layers({0: 2.0, 1: 0.1, 2: 0.05, 3: 0.01, 4: 0.3, 5: 1.0}, 4) == (1, 2, 3)
    assert select_redundant_layers({0: 2.0, 1: 0.9, 2: 0.5, 3: 0.6}, 2) == (2, 3)
    assert select_redundant_layers({0: 2.0, 1: -0.1, 2: 0.0, 3: 0.05}, 2) == (1, 2)


def test_joint_and_single_losses_make_the_rows_of_the_claim(stack: Stack, reading: EvalData) -> None:
    rows: list[Loss] = []
    before = {name: weight.clone() for name, weight in stack.model.state_dict().items()}
    perturbation_curves(stack, reading, sizes=(0.1, 1.0), alphas=(), layers=SET, cache=ResultCache(sink=rows.extend))
    joint_losses(stack, reading, SET[:1], cache=ResultCache(sink=rows.extend))
    assert all(torch.equal(weight, before[name]) for name, weight in stack.model.state_dict().items())
    keys = {row.plan for row in rows}
    assert {f"joint={name}:0.1" for name in STRATEGIES} <= keys
    baseline = str(Plan.identity(DEPTH))
    found = contrasted(PlanEffects.from_losses(rows, baseline, seed=0), dict.fromkeys(range(DEPTH), 0.1), SET[:1])
    shares = {(row.condition, row.strength): row.value for row in found if row.metric == "excess"}
    assert {(name, 0.1) for name in STRATEGIES} <= set(shares)
    assert all(abs(excess) < 1e-4 for excess in shares.values()), shares
    assert {row.claim for row in found} == {JOINT}
    assert [row.layer for row in found if row.metric == "member"] == [SET[0]]
