"""Layers that are changed together: the finding on scaling in simulated worlds, and the sets that are skipped."""

import itertools
from collections.abc import Sequence
from typing import Any

import pytest

from layerwise.measure.contrasts.contrast import PlanEffects
from layerwise.studies.diagnose.contrasts import contrast_redundant_sets, contrast_scaling, draw_random_sets
from page.claims import truths
from page.claims.documents import simulate_part
from page.claims.truths import CONTRADICTED, NULL, SUPPORTED, Truth

RANKING = {0: 4.0, 1: 0.05, 2: 0.05, 3: 0.05, 4: 1.0, 5: 2.0}  # three cost little


def planted(costs: Sequence[float], run: int, keys: Sequence[str] = (), **how: Any) -> PlanEffects:
    return PlanEffects(tuple(keys), lambda plans: simulate_part(costs, run, **how), run, 200)


def scaled(scale: float, equal: float, largest: float, *, noise: float = 0.01, documents: int = 16) -> Truth:
    conditions = {f"{layer}=scale:0.1": scale for layer in range(6)}
    for name in ("noise", "copy"):
        for layer in range(6):
            conditions |= {f"{layer}={name}:0.1": equal, f"{layer}={name}:1": largest}
    return lambda run: contrast_scaling(
        planted(list(conditions.values()), run, list(conditions), noise=noise, documents=documents)
    )


test_planted_costs_are_found_in_most_runs = truths.make_simulated_test(
    {
        "scaling": {
            SUPPORTED: (scaled(0.05, 0.15, 3.0),),
            NULL: (scaled(0.05, 0.05, 3.0),),
            CONTRADICTED: (scaled(0.2, 0.1, 0.1),),
        }
    },
    least=0.95,
)


def test_without_a_set_or_a_rival_there_are_no_rows() -> None:
    assert contrast_scaling(planted([0.1, 3.0], 0, ["0=scale:0.1", "0=noise:1", "0=gate:0.9"])) == []
    assert contrast_redundant_sets(PlanEffects.from_losses([], "0-5", seed=0), "0 4 5", ["random"], RANKING, 3) == []


def test_a_redundant_set_is_compared_with_random_sets() -> None:
    rows = contrast_redundant_sets(planted([0.1, 2.0, 3.0], 0, noise=0.0, skew=0.0), "chosen", ["a", "b"], RANKING, 3)
    values = {row.metric: row.value for row in rows}
    assert values == pytest.approx({"joint": 0.1, "spared": 2.4, "layers": 3.0, "singles": 0.15})


def test_random_sets_are_distinct_and_drawn_from_the_seed() -> None:
    drawn = draw_random_sets(12, 4, seed=0)
    assert len(drawn) == len(set(drawn)) == 20
    assert all(len(set(layers)) == 4 and list(layers) == sorted(layers) for layers in drawn)
    assert drawn == draw_random_sets(12, 4, seed=0) != draw_random_sets(12, 4, seed=1)
    assert draw_random_sets(6, 3, seed=0) == list(itertools.combinations(range(6), 3))
