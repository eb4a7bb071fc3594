"""The statistics: closed forms where there are any, and simulated studies whose truth is known where there are none.

The simulations are seeded, so they give the same answer every time; their bounds are about three standard errors of
the simulation wide, or the ones a user is promised.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import stats

from layerwise.errors import MeasureError
from layerwise.measure.stats.statistics import (
    Numbers,
    holm,
    minimum_detectable_effect,
    null_band,
    paired_bootstrap,
    paired_proportions,
    ratio,
    sign_flips,
    standard_error,
    student_interval,
    wilson,
)

STUDIES = 600
EFFECT = 0.05

probabilities = arrays(np.float64, st.integers(1, 12), elements=st.floats(0, 1, allow_subnormal=False))


def studies(
    generator: np.random.Generator, number: int, documents: int, effect: float = EFFECT
) -> tuple[Numbers, Numbers]:
    """Simulated studies of clustered data: (number, documents) extra nats, and (documents,) tokens for all of them.

    A document has log-normally many tokens and its own effect, which its tokens share: taking tokens for independent
    would make the intervals several times too short.
    """
    tokens = np.maximum(8, generator.lognormal(5, 0.6, documents).round())
    own = generator.normal(effect, 0.15, (number, documents))
    noise = generator.normal(0, 0.5, (number, documents)) * np.sqrt(tokens)
    return own * tokens + noise, tokens


def share(true: object) -> float:
    return float(np.mean(true))


# Ratios and intervals


def test_standard_error_is_that_of_a_mean_for_equal_denominators() -> None:
    values = np.random.default_rng(0).normal(size=(3, 20))
    np.testing.assert_allclose(standard_error(values, np.full(20, 4.0)), stats.sem(values, axis=1) / 4)
    np.testing.assert_allclose(ratio(values, np.full(20, 4.0)), values.mean(axis=1) / 4)


def test_student_interval_is_the_textbook_one() -> None:
    values = np.random.default_rng(0).normal(size=(1, 20))
    estimate = student_interval(values, np.ones(20))
    expected = stats.ttest_1samp(values[0], 0).confidence_interval(0.95)
    np.testing.assert_allclose([estimate.low[0], estimate.high[0]], expected)


@pytest.mark.parametrize("documents", [40, 120])
def test_bootstrap_intervals_cover_the_truth(documents: int) -> None:
    generator = np.random.default_rng(documents)
    covered = []
    # Several small sets of studies, because the studies of one set share their documents' lengths and resamples.
    for part in range(10):
        deltas, tokens = studies(generator, STUDIES // 10, documents)
        estimate = paired_bootstrap(deltas, tokens, seed=part, resamples=1000)
        covered += list((estimate.low <= EFFECT) & (estimate.high >= EFFECT))
    assert 0.92 <= share(covered) <= 0.98


def test_intervals_over_windows_of_few_long_documents_would_not_cover() -> None:
    """The deliberate wrong answer: resampling parts of documents as if they were independent."""
    generator = np.random.default_rng(1)
    own = np.repeat(generator.normal(EFFECT, 0.15, (STUDIES, 40)), 8, axis=1)
    windows = own * 100 + generator.normal(0, 5, own.shape)
    whole = windows.reshape(STUDIES, 40, 8).sum(axis=2)
    coverage = {}
    for name, deltas in {"windows": windows, "documents": whole}.items():
        tokens = np.full(deltas.shape[1], 100.0 * 320 / deltas.shape[1])
        estimate = paired_bootstrap(deltas, tokens, seed=0, resamples=1000)
        coverage[name] = share((estimate.low <= EFFECT) & (estimate.high >= EFFECT))
    assert coverage["windows"] < 0.7
    assert 0.92 <= coverage["documents"] <= 0.98


def test_pairing_removes_what_makes_documents_hard() -> None:
    generator = np.random.default_rng(2)
    tokens = np.full(60, 100.0)
    base = generator.normal(3, 1, 60) * tokens
    plan = base + generator.normal(0.02, 0.02, 60) * tokens
    paired = paired_bootstrap(plan - base, tokens, seed=0)
    alone = paired_bootstrap(plan, tokens, seed=0)
    assert (paired.high - paired.low) < 0.1 * (alone.high - alone.low)


def test_bootstrap_depends_on_the_seed_and_not_on_the_company() -> None:
    deltas, tokens = studies(np.random.default_rng(3), 300, 30)
    together = paired_bootstrap(deltas, tokens, seed=(5, 6), resamples=500)
    alone = paired_bootstrap(deltas[280], tokens, seed=(5, 6), resamples=500)
    other = paired_bootstrap(deltas[280], tokens, seed=(5, 7), resamples=500)
    np.testing.assert_allclose(together.low[280], alone.low[0], rtol=1e-12)
    np.testing.assert_array_equal(together.low, paired_bootstrap(deltas, tokens, seed=(5, 6), resamples=500).low)
    assert other.low[0] != alone.low[0]


def test_blocks_of_resamples_cover_all_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    deltas, tokens = studies(np.random.default_rng(4), 4, 30)
    monkeypatch.setattr("layerwise.measure.stats.statistics._CELLS", 7 * 30)
    small = paired_bootstrap(deltas, tokens, seed=0, resamples=500)
    flips = sign_flips(deltas, seed=0, flips=500)
    monkeypatch.setattr("layerwise.measure.stats.statistics._CELLS", 1)
    smallest = paired_bootstrap(deltas, tokens, seed=0, resamples=500)
    np.testing.assert_allclose(small.low, smallest.low, rtol=0.1)
    assert (flips.p * 501).tolist() == pytest.approx((flips.p * 501).round().tolist())
    assert ((flips.p >= 1 / 501) & (flips.p <= 1)).all()


@given(arrays(np.float64, 12, elements=st.floats(1, 1e3)), st.floats(-5, 5))
def test_an_effect_without_spread_has_an_interval_without_width(tokens: Numbers, effect: float) -> None:
    estimate = paired_bootstrap(effect * tokens, tokens, seed=0, resamples=50)
    for bound in (estimate.value, estimate.low, estimate.high):
        assert bound[0] == pytest.approx(effect, abs=1e-9)
    assert estimate.standard_error[0] == pytest.approx(0, abs=1e-9)


# Sign flips and the null band


def test_sign_flip_p_is_uniform_without_an_effect() -> None:
    deltas, _ = studies(np.random.default_rng(5), STUDIES, 40, effect=0.0)
    p = sign_flips(deltas, seed=0, flips=2000).p
    assert stats.kstest(p, "uniform").pvalue > 0.01
    assert 0.03 <= share(p <= 0.05) <= 0.07


def test_sign_flip_p_agrees_with_all_flips_written_out() -> None:
    values = np.array([0.4, -0.1, 0.3, 0.2, -0.3, 0.5, 0.1, 0.6])
    every = np.array(np.meshgrid(*[[-1.0, 1.0]] * 8)).reshape(8, -1).T
    exact = share(np.abs(every @ values) >= abs(values.sum()) - 1e-12)
    sampled = sign_flips(values, seed=0, flips=40_000).p[0]
    assert sampled == pytest.approx(exact, abs=4 * math.sqrt(exact * (1 - exact) / 40_000))


def test_the_smallest_p_is_bounded_by_the_flips() -> None:
    deltas, _ = studies(np.random.default_rng(6), 1, 200, effect=1.0)
    assert sign_flips(deltas, seed=0, flips=999).p[0] == 1 / 1000


def test_no_difference_at_all_has_p_one() -> None:
    assert sign_flips(np.zeros((2, 10)), seed=0, flips=100).p.tolist() == [1.0, 1.0]


def families(effect: float) -> tuple[list[bool], list[bool]]:
    """Whether Holm, and whether the null band, finds anything in each of 200 studies of 12 plans and 40 documents."""
    generator = np.random.default_rng(7)
    by_holm, by_band = [], []
    for study in range(200):
        deltas, tokens = studies(generator, 12, 40, effect)
        flips = sign_flips(deltas, seed=study, flips=1000)
        by_holm.append(bool((holm(flips.p) <= 0.05).any()))
        band = null_band(flips, deltas, tokens)
        by_band.append(bool((np.abs(ratio(deltas, tokens)) > band).any()))
    return by_holm, by_band


def test_holm_and_the_null_band_find_nothing_where_there_is_nothing() -> None:
    by_holm, by_band = families(effect=0.0)
    assert share(by_holm) <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / 200)
    assert 0.01 <= share(by_band) <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / 200)


def test_holm_and_the_null_band_find_what_is_there() -> None:
    by_holm, by_band = families(effect=0.15)
    assert share(by_holm) > 0.95
    assert share(by_band) > 0.95


def test_the_null_band_is_not_widened_by_plans_with_large_effects() -> None:
    deltas, tokens = studies(np.random.default_rng(8), 12, 60, effect=0.0)
    large = deltas.copy()
    large[6:] += 5.0 * tokens
    quiet, loud = (null_band(sign_flips(values, seed=0), values, tokens)[:6] for values in (deltas, large))
    np.testing.assert_allclose(quiet, loud, rtol=0.1)


def test_too_few_units_to_exclude_anything_have_no_band() -> None:
    assert sign_flips(np.ones((3, 4)), seed=0).critical == math.inf


# Corrections and resolution


@pytest.mark.parametrize(
    ("p", "adjusted"),
    [
        ([0.01], [0.01]),
        ([0.01, 0.02, 0.03, 0.04, 0.05], [0.05, 0.08, 0.09, 0.09, 0.09]),  # by hand: 5p, 4p, 3p, then held up
        ([0.04, 0.001, 0.03], [0.06, 0.003, 0.06]),
        ([0.5, 0.6, 0.9], [1.0, 1.0, 1.0]),
        ([], []),
        ([0.01, math.nan, 0.03], [0.02, math.nan, 0.03]),  # what was not tested is not counted
    ],
)
def test_holm_by_hand(p: list[float], adjusted: list[float]) -> None:
    np.testing.assert_allclose(holm(p), adjusted)


@given(probabilities)
def test_holm_lies_between_the_raw_values_and_bonferroni(p: Numbers) -> None:
    adjusted = holm(p)
    assert (adjusted >= p).all()
    assert (adjusted <= np.minimum(1, p * p.size)).all()
    assert adjusted[np.argmin(p)] == min(1, p.min() * p.size)
    order = np.argsort(p, kind="stable")
    assert (np.diff(adjusted[order]) >= 0).all()
    np.testing.assert_array_equal(holm(p[::-1]), adjusted[::-1])


def test_minimum_detectable_effect_is_the_textbook_one_for_many_units() -> None:
    effect = minimum_detectable_effect([0.5], 10**7)
    np.testing.assert_allclose(effect, 0.5 * (1.959964 + 0.841621), rtol=1e-5)
    assert minimum_detectable_effect(1.0, 40, comparisons=100) > minimum_detectable_effect(1.0, 40)
    assert minimum_detectable_effect(1.0, 8) > minimum_detectable_effect(1.0, 40)


@pytest.mark.parametrize("comparisons", [1, 20])
def test_an_effect_at_the_resolution_is_found_four_times_in_five(comparisons: int) -> None:
    generator = np.random.default_rng(9)
    reference, tokens = studies(generator, 4000, 60, effect=0.0)
    mde = float(minimum_detectable_effect(ratio(reference, tokens).std(), 60, comparisons=comparisons))
    own = generator.normal(mde, 0.15, (STUDIES, 60))
    deltas = own * tokens + generator.normal(0, 0.5, own.shape) * np.sqrt(tokens)
    found = sign_flips(deltas, seed=0, flips=4000).p <= 0.05 / comparisons
    assert 0.74 <= share(found) <= 0.86


# Proportions


@pytest.mark.parametrize(("successes", "trials"), [(0, 12), (5, 12), (12, 12), (731, 1000)])
def test_wilson_is_scipys(successes: int, trials: int) -> None:
    estimate = wilson([successes], trials)
    expected = stats.binomtest(successes, trials).proportion_ci(0.95, method="wilson")
    np.testing.assert_allclose([estimate.low[0], estimate.high[0]], [expected.low, expected.high], atol=1e-12)
    assert estimate.value[0] == successes / trials


def test_paired_proportions_cover_the_truth_and_never_vanish() -> None:
    generator = np.random.default_rng(10)
    outcomes = generator.choice(3, p=[0.12, 0.05, 0.83], size=(STUDIES, 60))
    estimate = paired_proportions((outcomes == 0).sum(axis=1), (outcomes == 1).sum(axis=1), 60)
    assert 0.92 <= share((estimate.low <= 0.07) & (estimate.high >= 0.07)) <= 0.98
    agreed = paired_proportions([0], [0], 60)
    assert agreed.value[0] == 0
    assert agreed.low[0] == -agreed.high[0] < 0
    assert agreed.standard_error[0] > 0


# Bad input


@pytest.mark.parametrize(
    ("numerators", "denominators", "part"),
    [
        ([[1.0, 2.0]], [1.0, 2.0, 3.0], r"shape \(1, 2\) and denominators of shape \(3,\)"),
        ([[1.0]], [1.0], "over 1 units"),
        ([[1.0, math.nan]], [1.0, 1.0], "finite"),
        ([[1.0, 2.0]], [1.0, 0.0], "positive"),
    ],
)
def test_bad_input_is_refused(numerators: list[list[float]], denominators: list[float], part: str) -> None:
    for function in (ratio, standard_error, student_interval):
        with pytest.raises(MeasureError, match=part):
            function(numerators, denominators)
    with pytest.raises(MeasureError, match=part):
        paired_bootstrap(numerators, denominators, seed=0)


def test_a_resolution_needs_two_units() -> None:
    with pytest.raises(MeasureError, match="at least 2"):
        minimum_detectable_effect([1.0], 1)
