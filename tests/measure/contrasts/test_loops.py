"""The best number of loops is chosen on one half of the documents and compared on the other."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from layerwise.measure.interventions.sweep import plan_records
from layerwise.measure.stats.grid import Grid
from layerwise.plan import Plan, families
from layerwise.studies.sweep.contrasts import contrast_loops
from layerwise.studies.sweep.strategies import Strategies


@pytest.fixture(scope="module")
def both() -> Strategies:
    records = plan_records((*families.looped(8), *families.gain_sweep(8)))
    plans = tuple(sorted({str(Plan.identity(8)), *(record.plan for record in records)}))
    draw = np.random.default_rng(5)
    tokens = np.round(draw.lognormal(3.0, 0.5, 40)) + 2
    nll = (1.0 + draw.standard_normal((len(plans), 40))) * tokens
    cells = tuple(("text", f"{number:02}", 0) for number in range(40))
    grid = Grid(plans, cells, nll, np.zeros_like(nll), tokens)
    return Strategies.from_grid(grid, records, str(Plan.identity(8)), seed=3, resamples=100)


@given(st.integers(0, 2**32 - 1))
def test_the_halves_partition_the_documents(both: Strategies, seed: int) -> None:
    strategies = Strategies(both.parts, both.shares, both.rows, seed)
    halves = strategies.split_halves()
    for whole, one, other in zip(strategies.parts, *(half.parts for half in halves), strict=True):
        assert one.units + other.units == whole.units
        assert abs(one.units - other.units) <= 1
        columns = np.concatenate([one.numerators, other.numerators], axis=1)
        assert sorted(map(tuple, columns.T)) == sorted(map(tuple, whole.numerators.T))
        assert one.tokens + other.tokens == pytest.approx(whole.tokens, abs=1)


def test_the_best_loop_count_and_gain_are_chosen_on_one_half(both: Strategies) -> None:
    effects = [part.effects for (part,) in (half.parts for half in both.split_halves())]
    differences = {}
    for size in (3, 5, 7):
        chosen = {}
        for family in ("looped", "gain_sweep"):
            rows = [at[size][0] for (owner, _), at in both.rows.items() if owner == family and size in at]
            chosen[family] = min(rows, key=lambda row: effects[0][row])
        differences[size] = effects[1][chosen["gain_sweep"]] - effects[1][chosen["looped"]]
    found = {(row.metric, row.affected): row for row in contrast_loops(both)}
    for size, difference in differences.items():
        assert found["gain-loops", size].value == pytest.approx(difference)
    assert (found["gain-loops", 3].documents, found["slope", None].documents) == (40, 40)


def test_too_few_counts_or_units_have_no_rows() -> None:
    records = plan_records((*families.looped(8, (1, 2)), *families.gain_sweep(8)))
    plans = tuple(sorted({str(Plan.identity(8)), *(record.plan for record in records)}))
    nll = np.ones((len(plans), 1))
    grid = Grid(plans, (("text", "0", 0),), nll, nll, np.ones(1))
    assert not list(contrast_loops(Strategies.from_grid(grid, records, str(Plan.identity(8)), seed=0)))
    assert not Strategies.from_grid(grid, records, str(Plan.identity(8)), seed=0).has_halves
