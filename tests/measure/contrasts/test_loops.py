"""How the best number of loops grows: on stacks whose best counts are known, chosen on one half and told on the other.

In the planted stack one layer in the middle writes and the others are silent, and the answer lies at a share of what it
writes. M parallel layers pass on one M-th of it, so that the best number of loops is that share times M.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from layerwise.measure.contrasts.loops import loop_count
from layerwise.measure.contrasts.strategies import Strategies
from layerwise.measure.interventions.sweep import plan_records
from layerwise.measure.stats.grid import Grid
from layerwise.plan import Plan, families
from layerwise.results.rows import PlanRecord, Score
from layerwise.stack import load
from layerwise.stack.executors.graph import GraphExecutor, build
from tier import by_tier

DEPTH = 12
WINDOWS = (3, 5, 7, 9, 11)
WHOLE = str(Plan.identity(DEPTH))
RECORDS = plan_records(families.looped(DEPTH))
PLANS = tuple(sorted({record.plan for record in RECORDS} | {WHOLE}))
RUNS = by_tier(fast=10, full=25, nightly=100)
WIDTHS = range(3, 30, 2)


def written(record: PlanRecord | None) -> float:
    """How much of its update the writing layer gives under a plan of the planted stack."""
    return 1.0 if record is None else int(record.strategy.partition("=")[2]) / record.affected


SHARES = np.array([written({record.plan: record for record in RECORDS}.get(plan)) for plan in PLANS])


def known_slope(share: float) -> float:
    counts = np.arange(1, DEPTH + 1)
    best = [counts[np.argmin((counts / size - share) ** 2)] for size in WINDOWS]
    return float(np.polyfit(WINDOWS, best, 1)[0])


def slope(share: float, run: int, *, documents: int, spread: float, noise: float) -> Score:
    """The slope of one run: documents differ in length, in where their answers lie and in what a distance costs."""
    draw = np.random.default_rng(run)
    tokens = np.round(draw.lognormal(4.0, 0.5, documents)) + 2
    answers = share + spread * draw.standard_normal(documents)
    steepness = draw.gamma(2.0, 0.5, documents)
    nll = 1.0 + steepness * (SHARES[:, None] - answers) ** 2 + noise * draw.standard_normal((len(PLANS), documents))
    cells = tuple(("text", f"{number:03}", 0) for number in range(documents))
    grid = Grid(PLANS, cells, nll * tokens, np.zeros_like(nll), tokens)
    strategies = Strategies.of(grid, RECORDS, WHOLE, seed=run, resamples=400)
    (row,) = [row for row in loop_count(strategies) if row.metric == "slope"]
    return row


class Layer(nn.Module):
    def __init__(self, update: Tensor) -> None:
        super().__init__()
        self.update = nn.Parameter(update)

    def forward(self, state: Tensor) -> Tensor:
        return state + self.update


class Planted(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Layer(torch.full((2,), float(layer == DEPTH // 2))) for layer in range(DEPTH))

    def forward(self, points: Tensor) -> Tensor:
        state = points
        for block in self.blocks:
            state = block(state)
        return state


def test_the_planted_stack_writes_what_the_simulation_says() -> None:
    points = torch.tensor([[0.5, -1.0], [2.0, 0.0]])
    stack = load(Planted(), layers="blocks")
    for record in (*RECORDS[::7], RECORDS[-1]):
        update = stack.output(record.plan, points=points) - points
        assert torch.allclose(update, torch.full_like(update, written(record)), atol=1e-6), record.plan


@pytest.mark.simulated
@pytest.mark.parametrize("share", [1.0, 0.6, 0.35])
@pytest.mark.parametrize(
    "world",
    [
        {"documents": 24, "spread": 0.1, "noise": 0.01},
        {"documents": 24, "spread": 0.5, "noise": 0.3},
        {"documents": 10, "spread": 0.3, "noise": 0.1},
    ],
    ids=["clear", "noisy", "few"],
)
def test_the_interval_holds_the_known_slope_in_95_of_100_runs(share: float, world: dict[str, float]) -> None:
    rows = [slope(share, run, **world) for run in range(RUNS)]  # type: ignore[arg-type]
    held = sum((row.low or 0.0) - 1e-9 <= known_slope(share) <= (row.high or 0.0) + 1e-9 for row in rows)
    assert held >= round(0.95 * RUNS) - (RUNS < 100), held


def test_a_slope_of_clear_text_is_found_exactly_and_is_not_zero() -> None:
    row = slope(0.6, 0, documents=200, spread=0.02, noise=0.0)
    assert row.value == pytest.approx(known_slope(0.6))
    assert 0 < (row.low or 0.0) <= row.value <= (row.high or 0.0)


@pytest.fixture(scope="module")
def both() -> Strategies:
    """Loops and gains of which none is better than another: what differs is noise of each document."""
    records = plan_records((*families.looped(8), *families.gain_sweep(8)))
    plans = tuple(sorted({str(Plan.identity(8)), *(record.plan for record in records)}))
    draw = np.random.default_rng(5)
    tokens = np.round(draw.lognormal(3.0, 0.5, 40)) + 2
    nll = (1.0 + draw.standard_normal((len(plans), 40))) * tokens
    cells = tuple(("text", f"{number:02}", 0) for number in range(40))
    grid = Grid(plans, cells, nll, np.zeros_like(nll), tokens)
    return Strategies.of(grid, records, str(Plan.identity(8)), seed=3, resamples=100)


@given(st.integers(0, 2**32 - 1))
def test_two_halves_are_the_whole_and_share_nothing(both: Strategies, seed: int) -> None:
    strategies = Strategies(both.parts, both.shares, both.rows, seed)
    halves = strategies.halves()
    assert halves is not None
    for whole, one, other in zip(strategies.parts, *(half.parts for half in halves), strict=True):
        assert one.units + other.units == whole.units
        assert abs(one.units - other.units) <= 1
        columns = np.concatenate([one.numerators, other.numerators], axis=1)
        assert sorted(map(tuple, columns.T)) == sorted(map(tuple, whole.numerators.T))
        assert one.tokens + other.tokens == pytest.approx(whole.tokens, abs=1)


def test_the_best_loop_and_the_best_gain_are_chosen_on_one_half_and_compared_on_the_other(both: Strategies) -> None:
    halves = both.halves()
    assert halves is not None
    effects = [part.numerators.sum(axis=1) / part.denominators.sum() for (part,) in (half.parts for half in halves)]
    differences = {}
    for size in (3, 5, 7):
        chosen = {}
        for family in ("looped", "gain_sweep"):
            rows = [at[size][0] for (owner, _), at in both.rows.items() if owner == family and size in at]
            chosen[family] = min(rows, key=lambda row: effects[0][row])
        differences[size] = effects[1][chosen["gain_sweep"]] - effects[1][chosen["looped"]]
    found = {(row.metric, row.amount): row for row in loop_count(both)}
    for size, difference in differences.items():
        assert found["gain-loops", size].value == pytest.approx(difference)
    assert found["gain-loops", None].value == pytest.approx(np.mean(list(differences.values())))
    assert (found["gain-loops", None].documents, found["slope", None].documents) == (40, 40)


def test_too_few_counts_or_units_say_nothing() -> None:
    records = plan_records((*families.looped(8, (1, 2)), *families.gain_sweep(8)))
    plans = tuple(sorted({str(Plan.identity(8)), *(record.plan for record in records)}))
    nll = np.ones((len(plans), 1))
    grid = Grid(plans, (("text", "0", 0),), nll, nll, np.ones(1))
    assert loop_count(Strategies.of(grid, records, str(Plan.identity(8)), seed=0)) == []
    assert Strategies.of(grid, records, str(Plan.identity(8)), seed=0).halves() is None


@pytest.mark.slow
def test_thirty_layers_by_28_loops_take_the_least_layer_evaluations() -> None:
    """Every loop of a window continues the one before it: a window of M layers costs 28 M, and its 28 ends their own.

    The layers before the windows cost nothing but the first: each is among the first pass of the window around it.
    """
    graph = build([member.plan for member in families.looped(30, range(1, 29))])
    walk = GraphExecutor(graph, lambda layer, state, part, source: state + layer, torch.zeros(1))
    assert sum(1 for _ in walk.states()) == graph.heads == 14 * 28
    assert walk.evaluated == graph.evaluations == 1 + sum(28 * width + 28 * (29 - width) // 2 for width in WIDTHS)
    assert walk.evaluated < graph.naive / 10
    assert walk.most_live < 100
