"""A grid of biases whose effect is planted: the slope is found, a best bias in the middle too, and nothing in noise."""

from __future__ import annotations

import numpy as np
import pytest

from layerwise.experiments.layer_weights_study.arms import arms, bias_arms
from layerwise.experiments.layer_weights_study.bias import bias_rows
from layerwise.results.rows import Score
from row_names import named
from tier import by_tier

BIASES = bias_arms((0, 0.5, 1, 2, 4))


def losses(effect: dict[float, float], seeds: int = 3, noise: float = 0.004, run: int = 0) -> list[Score]:
    """Held-out losses of every arm and seed: the seed's own, the bias's own, and noise."""
    chance = np.random.default_rng(run)
    shared = 3 + 0.05 * chance.standard_normal(seeds)
    return [
        Score("masked_lm", "nll", shared[seed] + effect[bias] + noise * chance.normal(), arm=arm, seed=seed)
        for arm, bias in BIASES.items()
        for seed in range(seeds)
    ]


def found(rows: list[Score]) -> dict[tuple[str, str], Score]:
    return {(named(row), row.metric): row for row in bias_rows(rows, BIASES)}


def test_a_grid_has_the_arms_of_the_study_under_their_names() -> None:
    assert list(BIASES) == ["zero", "elc-bias-0.5", "elc", "elc-bias-2", "elc-bias-4"]
    recipes = {each.arm: each for each in arms("tiny", (0, 0.5, 1, 2, 4), steps=4)}
    assert list(recipes)[-3:] == ["elc-bias-0.5", "elc-bias-2", "elc-bias-4"]
    assert (recipes["elc-bias-2"].variant, recipes["elc-bias-2"].initialisation) == ("elc", "2")


def test_two_biases_are_no_grid() -> None:
    assert bias_rows(losses(dict.fromkeys(BIASES.values(), 0.0)), bias_arms((0, 1))) == []


def test_every_arm_has_its_bias_and_its_mean() -> None:
    rows = found(losses({bias: 0.1 * bias for bias in BIASES.values()}, noise=0.0))
    assert [rows[arm, "value"].amount for arm in BIASES] == [0, 0.5, 1, 2, 4]
    assert rows["elc-bias-4", "value"].value - rows["zero", "value"].value == pytest.approx(0.4)
    assert rows["all", "slope"].value == pytest.approx(0.1)


@pytest.mark.simulated
def test_a_slope_a_peak_and_nothing() -> None:
    """Of 200 grids of three seeds: what was planted is found in 95 of 100, what was not in at most 7."""
    runs = by_tier(fast=60, full=200)
    truths = {
        "slope": {bias: 0.01 * bias for bias in BIASES.values()},
        "peak": {bias: -0.03 * (bias == 1) for bias in BIASES.values()},
        "nothing": dict.fromkeys(BIASES.values(), 0.0),
    }
    share = {}
    for truth, effect in truths.items():
        grids = [found(losses(effect, run=run)) for run in range(runs)]
        for metric in ("slope", "differ"):
            share[truth, metric] = sum((each["all", metric].p_adjusted or 1) < 0.05 for each in grids) / runs
    assert share["slope", "slope"] >= 0.95
    assert share["peak", "differ"] >= 0.95
    assert max(share["nothing", "slope"], share["nothing", "differ"]) <= 0.09
