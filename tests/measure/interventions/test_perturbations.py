import itertools
import math
import weakref
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from layerwise.measure.contrasts.contrast import PlanEffects
from layerwise.measure.interventions import perturbations
from layerwise.measure.interventions.intervention import Intervention, ResultCache, intervention_losses
from layerwise.measure.interventions.perturbations import (
    STRATEGIES,
    Perturbations,
    Strategy,
    _gated_point,
    joint_losses,
    perturbation_curves,
    read_matrices,
    relative_size,
)
from layerwise.measure.interventions.sweep import sweep
from layerwise.measure.language.evaluation_data import EvalData
from layerwise.measure.stats.float64 import to_float64
from layerwise.plan import Plan
from layerwise.plan.checks import SUBLAYERS, Sublayer
from layerwise.results.rows import Loss, Score
from layerwise.results.selection import Rows
from layerwise.stack import Stack, load
from layerwise.stack.weights import layer_weights
from layerwise.studies.diagnose.contrasts import JOINT, select_redundant_layers
from layerwise.studies.diagnose.contrasts import contrast_joint_changes as contrasted
from measure.planted import noise, planted_stack, stack_of_layers
from measure.planted_models import own_text, planted

STACK = planted_stack({"mlp": noise(5, 24, 16), "attn": 3 * noise(5, 8, 8, seed=1), "gain": noise(5, 7, 1)[:, :, 0]})


MOVES = Perturbations(STACK, 0)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_perturbations_have_the_requested_size(strategy: Strategy) -> None:
    for layer, size in itertools.product(range(STACK.depth), (0.05, 0.3, 0.5, 1.0)):
        weights = read_matrices(STACK, layer)
        assert "gain" not in weights
        if not MOVES.exists(layer, strategy, size):
            assert (strategy, size) == ("predict", 1.0)
            continue
        moved = MOVES.at(layer, strategy, size)
        assert moved.keys() == weights.keys()
        assert relative_size(moved, weights) == pytest.approx(size, rel=1e-9)


def test_perturbations_hold_at_most_three_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    widened: list[weakref.ref[Tensor]] = []

    def reading(stack: Stack, layer: int) -> dict[str, torch.nn.Parameter]:
        read.append(layer)
        return layer_weights(stack, layer)

    def widening(values: Tensor) -> Tensor:
        result = to_float64(values)
        widened.append(weakref.ref(result))
        return result

    stack = planted_stack({"mlp": noise(6, 8, 8).float(), "attn": noise(6, 4, 4, seed=1).float()})
    monkeypatch.setattr(perturbations, "layer_weights", reading)
    monkeypatch.setattr(perturbations, "to_float64", widening)
    monkeypatch.setattr(perturbations, "predict_layer", lambda stack, layer: {})
    moves = Perturbations(stack, 0)
    points = list(itertools.product(range(stack.depth), STRATEGIES, (0.05, 0.1, 0.2, 0.3)))
    there = [point for point in points if moves.exists(*point)]
    assert sorted(read) == list(range(stack.depth))
    read.clear()
    for point in there:
        moves.at(*point)
    assert sorted(read) == list(range(stack.depth))
    assert sum(each() is not None for each in widened) <= 3 * 2


def test_scaling_by_a_tenth_matches_the_published_factor() -> None:
    weights, moved = read_matrices(STACK, 1), MOVES.at(1, "scale", 0.1)
    assert all(torch.allclose(moved[name], 0.9 * weights[name]) for name in weights)
    assert all(not moved.any() for moved in MOVES.at(1, "scale", 1.0).values())


def test_noise_is_proportional_and_seeded() -> None:
    weights, moved = read_matrices(STACK, 1), MOVES.at(1, "noise", 0.2)
    for name, weight in weights.items():
        assert relative_size({name: moved[name]}, {name: weight}) == pytest.approx(0.2)
        assert torch.equal(moved[name], Perturbations(STACK, 0).at(1, "noise", 0.2)[name])
        assert not torch.equal(moved[name], Perturbations(STACK, 1).at(1, "noise", 0.2)[name])
        further = MOVES.at(1, "noise", 0.4)[name] - weight
        torch.testing.assert_close(further, 2 * (moved[name] - weight))


def test_low_rank_is_a_truncated_svd() -> None:
    weight = read_matrices(STACK, 1)["mlp"]
    values = torch.linalg.svdvals(weight)
    # Singular values round by a unit of the largest per row, twice, plus a product over the columns in between.
    known = torch.finfo(torch.float64).eps * float(values[0]) * (2 * len(weight) + len(values))
    for gone in range(1, len(values)):
        # The size at which exactly this many of the smallest values vanish, and sizes within rounding of it.
        size = float(values[-gone:].norm() / values.norm())
        for near in (size, math.nextafter(size, 0), math.nextafter(size, 1)):
            moved = torch.linalg.svdvals(MOVES.at(1, "low_rank", near)["mlp"])
            torch.testing.assert_close(moved[:-gone], values[:-gone], rtol=0, atol=known)
            assert float(moved[-gone:].max()) <= known
        # Far from there no further value vanishes, and the one before has begun to shrink.
        moved = torch.linalg.svdvals(MOVES.at(1, "low_rank", size * 1.01)["mlp"])
        torch.testing.assert_close(moved[: -gone - 1], values[: -gone - 1], rtol=0, atol=known)
        assert float(moved[-gone:].min()) > known


def test_interpolation_ends_at_the_neighbors() -> None:
    for layer, sources in ((0, (1,)), (2, (1, 3)), (4, (3,))):
        own = read_matrices(STACK, layer)["mlp"]
        mean = torch.stack([read_matrices(STACK, other)["mlp"] for other in sources]).mean(dim=0)
        _on_a_line(own, mean, MOVES.at(layer, "interpolate", 0.3)["mlp"])
        before = read_matrices(STACK, layer - 1 if layer else 1)["mlp"]
        _on_a_line(own, before, MOVES.at(layer, "copy", 0.3)["mlp"])


def _on_a_line(start: Tensor, end: Tensor, point: Tensor) -> None:
    shares = (point - start) / (end - start)
    torch.testing.assert_close(shares, shares.median().expand_as(shares))
    assert 0 < float(shares.median()) < 1


def test_neighbors_of_other_shapes_are_not_interpolated() -> None:
    draw = torch.Generator().manual_seed(0)
    layers = [{"w": torch.randn(4 + (layer == 1), 4, generator=draw)} for layer in range(4)]
    moves = Perturbations(stack_of_layers(layers), 0)
    assert not moves.exists(0, "copy", 0.1)
    assert not moves.exists(2, "interpolate", 0.1)
    assert moves.exists(3, "copy", 0.1)
    assert not moves.exists(3, "predict", 0.1), "it has no equal neighbors either"


def test_zero_matrices_are_unchanged() -> None:
    nothing = {"w": torch.zeros(4, 4)}
    some = {"w": torch.zeros(4, 4), "v": torch.eye(4)}
    moves = Perturbations(stack_of_layers([nothing, some, some, some]), 0)
    assert not any(moves.exists(0, strategy, 0.1) for strategy in STRATEGIES)
    for strategy in ("scale", "noise", "low_rank"):
        moved = moves.at(2, strategy, 0.25)  # type: ignore[arg-type]
        assert not moved["w"].any()
        assert relative_size(moved, read_matrices(stack_of_layers([some]), 0)) == pytest.approx(0.25)


LLAMA = load(planted(identity=[3]))
READING = own_text(LLAMA)


@pytest.fixture(scope="module")
def measured() -> list[Score]:
    return perturbation_curves(LLAMA, READING, sizes=(0.1, 0.5, 1.0), alphas=(0.0, 0.5, 1.0, 1.1))


def one(rows: Sequence[Score], layer: int, condition: str, strength: float, **columns: Any) -> Score:
    about = {"part": None, "against": None, **columns}
    (found,) = Rows(rows).where(layer=layer, condition=condition, strength=strength, **about)
    return found


def losses_of(interventions: Sequence[Intervention]) -> dict[str, dict[tuple[str, int], float]]:
    return by_plan(intervention_losses(LLAMA, interventions, READING))


def by_plan(rows: Sequence[Loss]) -> dict[str, dict[tuple[str, int], float]]:
    found: dict[str, dict[tuple[str, int], float]] = {}
    for row in rows:
        found.setdefault(row.plan, {})[row.document, row.window] = row.nll
    return found


@pytest.mark.parametrize("part", [None, *SUBLAYERS])
def test_open_gate_matches_the_original_exactly(part: Sublayer | None) -> None:
    intervention, _ = _gated_point(2, part, 1.0)
    losses = losses_of([intervention])
    assert losses[intervention.key] == losses[str(Plan.identity(6))]


@pytest.mark.parametrize(("part", "plan"), [(None, "0-1 3-5"), ("attn", "0-1 2.mlp 3-5"), ("mlp", "0-1 2.attn 3-5")])
def test_closed_gate_matches_skipping_the_layer(part: Sublayer | None, plan: str) -> None:
    intervention, _ = _gated_point(2, part, 0.0)
    losses = losses_of([intervention])[intervention.key]
    swept = by_plan(sweep(LLAMA, [Plan.parse(plan)], READING))[str(Plan.parse(plan))]
    assert losses == pytest.approx(swept, rel=1e-6)


def test_half_open_gate_applies_half_the_update() -> None:
    intervention, _ = _gated_point(2, None, 0.5)
    halfway = losses_of([intervention])[intervention.key]
    doubled = load(planted(identity=[3]))
    block = doubled.model.get_submodule("model.layers.2")

    def halve(module: torch.nn.Module, args: tuple[torch.Tensor, ...], output: torch.Tensor) -> torch.Tensor:
        return args[0] + 0.5 * (output - args[0])

    handle = block.register_forward_hook(halve)
    by_hook = by_plan(sweep(doubled, [], READING))["0-5"]
    handle.remove()
    assert halfway == pytest.approx(by_hook, rel=1e-5)


def test_every_point_has_a_row_and_a_null(measured: list[Score]) -> None:
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


def test_layer_without_matrices_matches_skipping(measured: list[Score]) -> None:
    for layer in range(6):
        gone, skipped = one(measured, layer, "scale", 1.0), one(measured, layer, "gate", 0.0)
        assert gone.value == pytest.approx(skipped.value, abs=1e-6)
        assert one(measured, layer, "low_rank", 1.0).value == pytest.approx(skipped.value, abs=1e-6)


DEPTH = 6
SET = (2, 3)


def test_redundant_set_has_two_layers_of_low_single_cost() -> None:
    assert select_redundant_layers({0: 2.0, 1: 0.1, 2: 0.05, 3: 0.01, 4: 0.3, 5: 1.0}, 4) == (1, 2, 3)
    assert select_redundant_layers({0: 2.0, 1: 0.9, 2: 0.5, 3: 0.6}, 2) == (2, 3)
    assert select_redundant_layers({0: 2.0, 1: -0.1, 2: 0.0, 3: 0.05}, 2) == (1, 2)


def test_joint_and_single_losses_give_the_contrast(stack: Stack, reading: EvalData) -> None:
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
