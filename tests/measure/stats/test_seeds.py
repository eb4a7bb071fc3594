import numpy as np
import pytest
from scipy import stats

from layerwise.errors import MeasureError
from layerwise.measure.stats.seeds import SeedDifference, seed_difference, seed_interval
from layerwise.measure.stats.statistics import student_interval


def test_seed_differences_match_the_paired_t_test() -> None:
    """Shared seed effects cancel; the resolution allows for the spread of few seeds (c4 of 6: 0.9594)."""
    shared, noise = np.random.default_rng(0).normal(0, 5, 7), np.random.default_rng(1).normal(0, 1, (2, 7))
    one, other = dict(enumerate(shared + noise[0] + 1)), dict(enumerate(shared + noise[1]))
    found = seed_difference(one, other)
    expected = stats.ttest_rel(list(one.values()), list(other.values()))
    assert found.p == pytest.approx(expected.pvalue)
    assert (found.low, found.high) == pytest.approx(tuple(expected.confidence_interval(0.95)))
    mde = (stats.t.ppf(0.975, 6) + stats.t.ppf(0.8, 6)) * stats.sem(noise[0] - noise[1]) / 0.95937
    assert found.mde == pytest.approx(mde, rel=1e-4)


@pytest.mark.parametrize(
    ("one", "other", "value", "seeds"),
    [
        pytest.param({4: 1.5}, {3: 9.0, 4: 1.0}, 0.5, 1, id="one seed"),
        pytest.param({0: 1.0, 1: 2.0}, {0: 1.0, 1: 2.0}, 0.0, 2, id="the same"),
        pytest.param({0: 0.3, 1: 0.4}, {0: 0.1, 1: 0.2}, 0.2, 2, id="two that agree are no certainty"),
    ],
)
def test_equal_seeds_have_a_value_without_interval(
    one: dict[int, float], other: dict[int, float], value: float, seeds: int
) -> None:
    assert seed_difference(one, other) == SeedDifference(pytest.approx(value), seeds)  # type: ignore[arg-type]


def test_variants_without_a_common_seed_have_no_difference() -> None:
    with pytest.raises(MeasureError, match="must share a seed"):
        seed_difference({0: 1.0}, {1: 1.0})


def test_seed_interval_is_limited_to_the_range_of_the_metric() -> None:
    values = [0.5, 0.9, 1.0]
    low, high = stats.t.interval(0.95, 2, loc=0.8, scale=stats.sem(values))
    assert seed_interval(values) == pytest.approx((low, high))
    assert high > 1
    assert seed_interval(values, "accuracy") == pytest.approx((low, 1.0))
    assert seed_interval([-0.9, 0.9, -1.0], "mcc") == (-1.0, 1.0)


def test_agreeing_seeds_have_the_uncertainty_of_their_examples() -> None:
    own = stats.binomtest(16, 48).proportion_ci(0.95, method="wilson")
    bounds = [(own.low, own.high)] * 2
    assert seed_interval([16 / 48] * 2, "accuracy", bounds) == pytest.approx((own.low, own.high))
    assert seed_interval([16 / 48] * 2, "accuracy") == (None, None)
    assert seed_interval([0.3 - 0.1, 0.2]) == (None, None), "rounding is no spread"


def test_interval_over_seeds_and_examples_matches_its_formula() -> None:
    values, bounds = [0.4, 0.6, 0.5], [(0.3, 0.6), (0.5, 0.8), (0.3, 0.7)]
    reach = stats.t.ppf(0.975, 2) * stats.sem(values)
    below, above = np.mean([0.1, 0.1, 0.2]), np.mean([0.2, 0.2, 0.2])
    expected = (0.5 - np.hypot(reach, below), 0.5 + np.hypot(reach, above))
    assert seed_interval(values, "", bounds) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("values", "bounds", "expected"),
    [
        ([0.4], None, (None, None)),
        ([0.4], [(0.2, 0.6)], (0.2, 0.6)),
        ([0.4], [(None, None)], (None, None)),
        ([0.4, 0.6], [(0.1, 0.7), (None, None)], (None, None)),
    ],
)
def test_few_seeds_use_the_interval_of_their_examples(values, bounds, expected) -> None:  # type: ignore[no-untyped-def]
    assert seed_interval(values, "accuracy", bounds) == pytest.approx(expected)


@pytest.mark.nightly
@pytest.mark.parametrize(("seeds", "shared"), [(2, 0.0), (2, 0.8), (3, 0.5), (3, 1.0), (8, 0.5)])
@pytest.mark.parametrize("between", [0.0, 0.1, 1.0])
def test_interval_over_seeds_and_examples_has_its_coverage(seeds: int, shared: float, between: float) -> None:
    """A loss is seed level + example difficulty (shared by all seeds) + noise; the true difference is 0."""
    draw, studies, examples = np.random.default_rng([seeds, int(10 * shared), int(10 * between)]), 1000, 20
    losses = between * draw.normal(size=(studies, seeds, 1)) + shared**0.5 * draw.normal(size=(studies, 1, examples))
    losses = losses + (1 - shared) ** 0.5 * draw.normal(size=(studies, seeds, examples))
    held = alone = 0
    for each in losses:
        own = student_interval(each, np.ones(examples))
        values, bounds = own.value.tolist(), list(zip(own.low.tolist(), own.high.tolist(), strict=True))
        low, high = seed_interval(values, "nll", bounds)
        held += low <= 0 <= high
        low, high = seed_interval(values, "nll")
        alone += low is not None and high is not None and low <= 0 <= high
    assert held >= 0.935 * studies  # 95 % less two standard deviations
    if shared and not between and seeds > 2:
        assert alone < 0.9 * studies, "the deliberate wrong answer: seeds alone"
