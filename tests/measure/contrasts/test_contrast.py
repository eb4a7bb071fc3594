"""Coverage of contrast intervals at corrected levels, and of means over few draws."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from layerwise.measure.contrasts.contrast import Part, Resampled, take_first
from layerwise.measure.stats.statistics import Numbers
from layerwise.studies.sweep.strategies import average_draws
from tier import by_tier


def resampled(effects: Numbers, seed: int = 0, draws: int = 1) -> Resampled:
    units = effects.shape[-1]
    return replace(Resampled.from_parts([Part(effects, np.ones(units), units, units)], seed=seed), redrawn=draws > 1)


def mean_of_draws(effects: Numbers) -> Numbers:
    return average_draws(effects, np.random.default_rng(0))


@pytest.mark.parametrize("level", [0.99, 1 - 0.05 / 8, 1 - 0.05 / 30])
def test_levels_beyond_the_resamples_use_students_interval(level: float) -> None:
    half = np.random.default_rng(1).normal(size=(1, 4))
    values = np.concatenate([half, -half], axis=1)
    found = resampled(values).estimate(take_first, level)
    reach = stats.t.ppf(0.5 + level / 2, 7) * stats.sem(values[0])
    assert found is not None
    assert (found.value - found.low, found.high - found.value) == pytest.approx((reach, reach), rel=0.1)


def test_means_over_draws_have_students_interval() -> None:
    draws = np.array([0.1, 0.5, 0.2])
    found = resampled(np.tile(draws[:, None], (1, 40)), draws=3).estimate(mean_of_draws)
    assert found is not None
    reach = stats.t.ppf(0.975, 2) * stats.sem(draws)
    assert (found.value - found.low, found.high - found.value) == pytest.approx((reach, reach), rel=0.2)


@pytest.mark.parametrize(
    ("units", "draws", "level"), [(8, 1, 1 - 0.05 / 8), (12, 1, 0.99), (40, 3, 0.95), (40, 10, 0.95), (8, 3, 0.95)]
)
def test_intervals_miss_no_more_often_than_their_level(units: int, draws: int, level: float) -> None:
    """Normal documents, and draws that vary as much as a mean over documents does and more."""
    count, missed = by_tier(fast=150, nightly=4_000), 0
    for seed in range(count):
        generator = np.random.default_rng([seed, units, draws])
        effects = generator.normal(size=(1, units)) + generator.normal(size=(draws, 1)) * 0.3 * (draws > 1)
        found = resampled(effects, seed, draws).estimate(mean_of_draws, level)
        missed += found is None or not found.low <= 0.0 <= found.high
    print(f"{units} units, {draws} draws, level {level:.4f}: missed in {missed / count:.4f}")
    assert missed / count <= 1.2 * (1 - level) + by_tier(fast=3, nightly=1) * (level * (1 - level) / count) ** 0.5
