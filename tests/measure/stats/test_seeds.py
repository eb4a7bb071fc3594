"""Differences over paired seeds: Student's, honest about few, blind to what all arms of a seed share."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from layerwise.errors import MeasureError
from layerwise.measure.stats.seeds import over_seeds, seed_difference


def _study(rng: np.random.Generator, effect: float, count: int = 3) -> tuple[dict[int, float], dict[int, float]]:
    shared = rng.normal(0.0, 5.0, count)
    noise = rng.normal(0.0, 1.0, (2, count))
    return dict(enumerate(shared + noise[0] + effect)), dict(enumerate(shared + noise[1]))


def test_it_is_the_paired_t_test() -> None:
    one, other = _study(np.random.default_rng(0), 1.0, 7)
    found = seed_difference(one, other)
    expected = stats.ttest_rel(list(one.values()), list(other.values()))
    interval = expected.confidence_interval(0.95)
    assert found.p == pytest.approx(expected.pvalue)
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high))


def test_false_alarms_stay_at_their_level() -> None:
    rng = np.random.default_rng(1)
    alarms = sum(seed_difference(*_study(rng, 0.0)).p < 0.05 for _ in range(1000))  # type: ignore[operator]
    assert 30 <= alarms <= 72  # 50 +- 3 standard deviations


def test_an_effect_of_the_resolution_is_found_in_most_studies() -> None:
    rng = np.random.default_rng(2)
    spread = 2.0**0.5
    quantiles = stats.t.ppf(0.975, 4) + stats.t.ppf(0.8, 4)
    effect = float(quantiles) * spread / 5**0.5
    found = sum(seed_difference(*_study(rng, effect, 5)).p < 0.05 for _ in range(500))  # type: ignore[operator]
    assert 0.7 <= found / 500 <= 0.9


def test_one_seed_has_a_value_and_no_interval() -> None:
    found = seed_difference({4: 1.5}, {3: 9.0, 4: 1.0})
    assert (found.value, found.seeds, found.low, found.p, found.mde) == (0.5, 1, None, None, None)


def test_arms_that_never_differ_and_arms_that_always_differ_alike() -> None:
    same = seed_difference({0: 1.0, 1: 2.0}, {0: 1.0, 1: 2.0})
    assert (same.value, same.p) == (0.0, 1.0)
    shifted = seed_difference({0: 2.0, 1: 3.0}, {0: 1.0, 1: 2.0})
    assert (shifted.value, shifted.low, shifted.high, shifted.p) == (1.0, 1.0, 1.0, 0.0)


def test_no_seed_in_common() -> None:
    with pytest.raises(MeasureError, match="no seed was trained in both arms"):
        seed_difference({0: 1.0}, {1: 1.0})


def test_student_s_interval_of_seeds_ends_where_the_metric_does() -> None:
    values = [0.5, 0.9, 1.0]
    low, high = stats.t.interval(0.95, 2, loc=0.8, scale=stats.sem(values))
    assert over_seeds(values) == pytest.approx((low, high))
    assert high > 1
    assert over_seeds(values, "accuracy") == pytest.approx((low, 1.0))
    assert over_seeds([-0.9, 0.9, -1.0], "mcc") == (-1.0, 1.0)
