"""Fixed plans and oracles at given mean layers, against the linear programmes that define them."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import linprog

from layerwise.search.routing.trial import best_mixture, oracle, slope

SEEDS = range(20)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_mixture_is_the_best_of_all_mixtures_within_the_limit(seed: int) -> None:
    chance = np.random.default_rng(seed)
    layers = chance.integers(4, 12, 6).astype(float)
    scores, limit = chance.normal(size=6), float(chance.uniform(layers.min(), 13))
    shares = best_mixture(scores, layers, limit)
    assert shares.min() >= 0
    assert shares.sum() == pytest.approx(1)
    assert shares @ layers <= limit + 1e-9
    best = linprog(-scores, A_ub=layers[None], b_ub=[limit], A_eq=np.ones((1, 6)), b_eq=[1])
    assert shares @ scores == pytest.approx(-best.fun, abs=1e-9)


def test_a_limit_below_the_cheapest_plan_takes_that_plan() -> None:
    assert best_mixture(np.array([0.1, 0.9]), np.array([6.0, 8.0]), 2.0).tolist() == [1.0, 0.0]


def test_a_layer_is_worth_the_slope_between_the_two_plans() -> None:
    scores, layers = np.array([0.2, 0.6]), np.array([6.0, 8.0])
    assert slope(best_mixture(scores, layers, 7.0), scores, layers) == pytest.approx(0.2)
    assert slope(best_mixture(scores, layers, 9.0), scores, layers) == 0.0


@pytest.mark.parametrize("seed", SEEDS)
def test_the_oracle_is_the_best_assignment_of_plans_to_questions(seed: int) -> None:
    chance = np.random.default_rng(seed)
    layers = np.array([4.0, 6.0, 8.0])
    scores = chance.integers(0, 2, (7, 3)).astype(float)
    limit = float(chance.uniform(3.5, 8.5))
    each = np.kron(np.eye(7), np.ones((1, 3)))
    allowed = max(limit, 4.0) * 7
    best = linprog(-scores.ravel(), A_ub=np.tile(layers, 7)[None], b_ub=[allowed], A_eq=each, b_eq=np.ones(7))
    assert oracle(scores, layers, limit).mean() == pytest.approx(-best.fun / 7, abs=1e-5)
