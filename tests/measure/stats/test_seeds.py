"""Differences over paired seeds: Student's, honest about few, blind to what all arms of a seed share."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from layerwise.errors import MeasureError
from layerwise.measure.stats.seeds import over_seeds, seed_difference
from layerwise.measure.stats.statistics import student_interval


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
    assert (same.value, same.low, same.p, same.mde) == (0.0, None, None, None)
    shifted = seed_difference({0: 0.3, 1: 0.4}, {0: 0.1, 1: 0.2})
    assert shifted.value == pytest.approx(0.2)
    assert (shifted.low, shifted.high, shifted.p) == (None, None, None), "two seeds that agree are no certainty"


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


def test_seeds_that_agree_are_as_uncertain_as_their_examples() -> None:
    """Both got 16 of the same 48 images right: another 48 would give another share."""
    own = stats.binomtest(16, 48).proportion_ci(0.95, method="wilson")
    bounds = [(own.low, own.high)] * 2
    assert over_seeds([16 / 48] * 2, "accuracy", bounds) == pytest.approx((own.low, own.high))
    assert over_seeds([16 / 48] * 2, "accuracy") == (None, None)
    assert over_seeds([0.3 - 0.1, 0.2]) == (None, None), "rounding is no spread"


def test_the_interval_over_seeds_and_examples_in_closed_form() -> None:
    values, bounds = [0.4, 0.6, 0.5], [(0.3, 0.6), (0.5, 0.8), (0.3, 0.7)]
    reach = stats.t.ppf(0.975, 2) * stats.sem(values)
    below, above = np.mean([0.1, 0.1, 0.2]), np.mean([0.2, 0.2, 0.2])
    expected = (0.5 - np.hypot(reach, below), 0.5 + np.hypot(reach, above))
    assert over_seeds(values, "", bounds) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("bounds", "expected"), [(None, (None, None)), ([(0.2, 0.6)], (0.2, 0.6)), ([(None, None)], (None, None))]
)
def test_one_seed_has_the_interval_of_its_examples(bounds, expected) -> None:  # type: ignore[no-untyped-def]
    assert over_seeds([0.4], "accuracy", bounds) == pytest.approx(expected)


def test_too_few_examples_for_an_interval_of_one_seed_are_too_few_for_several() -> None:
    assert over_seeds([0.4, 0.6], "accuracy", [(0.1, 0.7), (None, None)]) == (None, None)


@pytest.mark.nightly
@pytest.mark.parametrize(("seeds", "shared"), [(2, 0.0), (2, 0.8), (3, 0.5), (3, 1.0), (8, 0.5)])
@pytest.mark.parametrize("between", [0.0, 0.1, 1.0])
def test_the_interval_holds_the_truth_over_seeds_and_examples(seeds: int, shared: float, between: float) -> None:
    """A loss is the seed's level, the difficulty of the example, which all seeds share, and noise; the truth is 0."""
    draw, studies, examples = np.random.default_rng([seeds, int(10 * shared), int(10 * between)]), 1000, 20
    losses = between * draw.normal(size=(studies, seeds, 1)) + shared**0.5 * draw.normal(size=(studies, 1, examples))
    losses = losses + (1 - shared) ** 0.5 * draw.normal(size=(studies, seeds, examples))
    held = alone = 0
    for each in losses:
        own = student_interval(each, np.ones(examples))
        values, bounds = own.value.tolist(), list(zip(own.low.tolist(), own.high.tolist(), strict=True))
        low, high = over_seeds(values, "nll", bounds)
        assert low is not None
        assert high is not None
        held += low <= 0 <= high
        low, high = over_seeds(values, "nll")
        alone += low is not None and high is not None and low <= 0 <= high
    assert held >= 0.935 * studies  # 95 % less two standard deviations
    if shared and not between and seeds > 2:
        assert alone < 0.9 * studies, "the deliberate wrong answer: seeds alone"
