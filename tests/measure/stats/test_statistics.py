import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import stats

from layerwise.errors import MeasureError
from layerwise.measure.stats.estimate import SampleEstimate, hall_transform, satterthwaite
from layerwise.measure.stats.statistics import (
    FLIPS_PER_PLAN,
    Numbers,
    assess_effects,
    flips_can_decide,
    holm,
    mean_interval,
    minimum_detectable_effect,
    paired_bootstrap,
    paired_proportions,
    ratio,
    sign_flips,
    skewed_interval,
    standard_error,
    student_interval,
    wilson,
)
from tier import by_tier

STUDIES = 600
EFFECT = 0.05


def studies(
    generator: np.random.Generator, number: int, documents: int, effect: float = EFFECT
) -> tuple[Numbers, Numbers]:
    """Draw extra nats (number, documents), shared by the tokens of a document, and log-normal token counts."""
    tokens = np.maximum(8, generator.lognormal(5, 0.6, documents).round())
    own = generator.normal(effect, 0.15, (number, documents))
    noise = generator.normal(0, 0.5, (number, documents)) * np.sqrt(tokens)
    return own * tokens + noise, tokens


def share(true: object) -> float:
    return float(np.mean(true))


def test_interval_matches_students_t() -> None:
    """Compared with scipy, with the resolution of the first of 12 comparisons."""
    values = np.random.default_rng(0).normal(0.3, size=(2, 20))
    found = student_interval(values, np.ones(20))
    for row, own in enumerate(found.each()):
        test = stats.ttest_1samp(values[row], 0)
        assert (own.low, own.high) == pytest.approx(tuple(test.confidence_interval(0.95)))
        assert (own.error, own.freedom) == pytest.approx((stats.sem(values[row]), 19))
        assert found.p()[row] == own.p() == pytest.approx(test.pvalue)
        assert own.p_below() == pytest.approx(stats.ttest_1samp(values[row], 0, alternative="less").pvalue)
        mde = (stats.t.ppf(1 - 0.05 / 24, 19) + stats.t.ppf(0.8, 19)) * own.error
        assert own.detectable(12) == pytest.approx(mde)
        assert minimum_detectable_effect(own.error, 20, comparisons=12) > mde
    certain = SampleEstimate.student(np.array([0.0, 0.1, -0.1]), np.zeros(3), np.full(3, 9.0))
    assert certain.p().tolist() == [1.0, 0.0, 0.0]
    assert certain.p_below().tolist() == [1.0, 1.0, 0.0]


def test_skewness_correction_widens_the_relevant_tail() -> None:
    """Hall's cubic by hand, in the p-values, and inverted by the interval, whose bounds are just rejected."""
    for value, skewness in itertools.product((-2.5, 2.5), (-0.6, 0.6)):
        own = SampleEstimate.student(value, 1.0, 14.0, 0.95, skewness)
        t = value + skewness * value**2 / 3 + skewness**2 * value**3 / 27 + skewness / 6
        assert hall_transform(value, skewness) == pytest.approx(t)
        adverse = value * skewness < 0
        furthest = min(abs(value), abs(t)) if adverse else abs(value)
        assert own.p() == pytest.approx(2 * stats.t.sf(furthest, 14))
        if value < 0:
            assert own.p_below() == pytest.approx(stats.t.sf(furthest, 14))
        reach = stats.t.ppf(0.975, 14)
        plain, longer = (own.low, own.high) if skewness > 0 else (own.high, own.low)
        assert abs(value - plain) == pytest.approx(reach)
        assert abs(value - longer) > 1.2 * reach
        for bound in (own.low, own.high):
            shifted = replace(own, value=value - bound)
            assert shifted.p() == pytest.approx(0.05)


def test_skewness_of_a_mean_matches_its_formula() -> None:
    for units, factor in ((8, 2), (16, 2), (32, 1.25), (64, 1.0625)):
        values = np.random.default_rng(units).exponential(size=(2, units))
        found = skewed_interval(values, np.full(units, 5.0))
        assert found.error == pytest.approx(stats.sem(values, axis=1) / 5)
        assert found.skewness == pytest.approx(factor * stats.skew(values, axis=1) / units**0.5)
        assert found.freedom == pytest.approx(units - 1)
    two = skewed_interval(values, np.ones(64), strata=np.arange(64) % 2)
    apart = [skewed_interval(values[:, side::2], np.ones(32)) for side in (0, 1)]
    assert two.error == pytest.approx(np.sqrt(sum(np.square(each.error) for each in apart)) / 2)
    thirds = sum(each.skewness * each.error**3 for each in apart)
    assert two.skewness == pytest.approx(thirds / (2 * two.error) ** 3)


def test_skewness_of_unequal_units_matches_its_formula() -> None:
    tokens = np.array([1.0, 2, 3, 4, 5, 6, 7, 8])
    own = np.random.default_rng(1).exponential(size=8)
    found = skewed_interval(own * tokens, tokens)
    jackknife = [np.delete(own * tokens, at).sum() / np.delete(tokens, at).sum() for at in range(8)]
    assert found.error[0] == pytest.approx(np.std(jackknife) * 7**0.5, rel=0.05)
    assert found.freedom[0] == pytest.approx(36**2 / 204 - 1)
    assert skewed_interval(own * tokens**9, tokens**9).freedom[0] == pytest.approx(7 / 3), "a third at least"
    # Residuals of a size that grows with the length exactly, or with a power above 1 or below 0, which are not used.
    signs = np.array([1.0, -1, -1, -1, 1, -1, -1, 1])
    signs[-1] = -(signs * tokens)[:-1].sum() / 8
    for power, used in ((1.0, 1.0), (1.7, 1.0), (-0.5, 0.0)):
        residuals = signs * tokens**power
        residuals -= residuals.sum() / 36 * tokens
        scale = tokens**used
        expected = stats.skew(residuals / scale) * (scale**3).sum() / np.square(scale).sum() ** 1.5
        assert skewed_interval(residuals + 3 * tokens, tokens).skewness[0] == pytest.approx(2 * expected)


def test_degrees_of_freedom_of_a_sum_match_satterthwaite() -> None:
    one, other = np.random.default_rng(1).normal(size=10), np.random.default_rng(2).normal(0, 3, size=7)
    variances, freedoms = np.array([stats.sem(one) ** 2, stats.sem(other) ** 2]), np.array([9, 6])
    found = satterthwaite(variances.sum(), (variances**2 / freedoms).sum())
    assert found == pytest.approx(stats.ttest_ind(one, other, equal_var=False).df)
    assert satterthwaite(variances, variances**2 / freedoms) == pytest.approx(freedoms)


@pytest.mark.parametrize("documents", [40, 120])
def test_bootstrap_intervals_have_their_coverage(documents: int) -> None:
    generator = np.random.default_rng(documents)
    covered = []
    # Several small sets, because the studies of one set share document lengths and resamples.
    for part in range(10):
        deltas, tokens = studies(generator, STUDIES // 10, documents)
        estimate = paired_bootstrap(deltas, tokens, seed=part, resamples=1000)
        covered += list((estimate.low <= EFFECT) & (estimate.high >= EFFECT))
    assert 0.92 <= share(covered) <= 0.98


def test_bootstrap_depends_on_the_seed_but_not_on_other_plans() -> None:
    deltas, tokens = studies(np.random.default_rng(3), 300, 30)
    together = paired_bootstrap(deltas, tokens, seed=(5, 6), resamples=500)
    alone = paired_bootstrap(deltas[280], tokens, seed=(5, 6), resamples=500)
    other = paired_bootstrap(deltas[280], tokens, seed=(5, 7), resamples=500)
    np.testing.assert_allclose(together.low[280], alone.low[0], rtol=1e-12)
    np.testing.assert_array_equal(together.low, paired_bootstrap(deltas, tokens, seed=(5, 6), resamples=500).low)
    assert other.low[0] != alone.low[0]


def test_blocks_contain_all_resamples(monkeypatch: pytest.MonkeyPatch) -> None:
    deltas, tokens = studies(np.random.default_rng(4), 4, 30)
    monkeypatch.setattr("layerwise.measure.stats.statistics._CELLS", 7 * 30)
    small = paired_bootstrap(deltas, tokens, seed=0, resamples=500)
    flips = sign_flips(deltas, seed=0, flips=500)
    few = sign_flips(deltas[:, :10], seed=0)
    monkeypatch.setattr("layerwise.measure.stats.statistics._CELLS", 1)
    smallest = paired_bootstrap(deltas, tokens, seed=0, resamples=500)
    np.testing.assert_allclose(small.low, smallest.low, rtol=0.1)
    assert sign_flips(deltas[:, :10], seed=1).critical == pytest.approx(few.critical)
    assert (flips.p * 501).tolist() == pytest.approx((flips.p * 501).round().tolist())
    assert ((flips.p >= 1 / 501) & (flips.p <= 1)).all()


@given(arrays(np.float64, 12, elements=st.floats(1, 1e3)), st.floats(-5, 5))
def test_constant_effects_have_zero_width(tokens: Numbers, effect: float) -> None:
    estimate = paired_bootstrap(effect * tokens, tokens, seed=0, resamples=50)
    for bound in (estimate.value, estimate.low, estimate.high):
        assert bound[0] == pytest.approx(effect, abs=1e-9)
    assert estimate.error[0] == pytest.approx(0, abs=1e-9)


def test_sign_flip_p_matches_enumerated_and_sampled_flips() -> None:
    values = np.array([0.4, -0.1, 0.3, 0.2, -0.3, 0.5, 0.1, 0.6])
    every = np.array(np.meshgrid(*[[-1.0, 1.0]] * 8)).reshape(8, -1).T
    exact = share(np.abs(every @ values) >= abs(values.sum()) - 1e-12)
    assert sign_flips(values, seed=0, flips=128).p[0] == exact
    assert sign_flips(values, seed=0, flips=127).p[0] in np.arange(1, 129) / 128
    many = np.random.default_rng(0).normal(0.3, size=15)
    whole, drawn = (sign_flips(many, seed=0, flips=flips).p[0] for flips in (2**14, 2**14 - 1))
    assert 0 < abs(whole - drawn) < 4 * math.sqrt(whole / 2**14)


@pytest.mark.parametrize("plans", [1, 12, 30, 58, 90, 232, 930])
def test_min_units_can_show_an_effect_of_one_sign(plans: int) -> None:
    units = max(8, math.ceil(1 + math.log2(plans / 0.05)))
    assert flips_can_decide(units, plans)
    assert units == 8 or not flips_can_decide(units - 1, plans)
    for seed in range(5):
        values = np.random.default_rng(seed).normal(5, 0.05, (1, units))
        p = sign_flips(values, seed=seed, flips=max(10_000, FLIPS_PER_PLAN * plans)).p
        assert p == 2.0 ** (1 - units)
        assert holm(np.repeat(p, plans)).min() <= 0.05
        assert assess_effects(values, np.ones(units), seed=seed, comparisons=plans).p == p


def test_p_is_the_larger_of_sign_flips_and_students_t() -> None:
    draw, tokens = np.random.default_rng(3), np.arange(5.0, 15.0)
    deltas = draw.normal(size=(8, 10)) + np.linspace(-1, 1, 8)[:, None]
    student, flipped = skewed_interval(deltas, tokens).p(), sign_flips(deltas, seed=0).p
    assert len({*(student > flipped)}) == 2
    found = assess_effects(deltas, tokens, seed=0, comparisons=25)
    assert found.p.tolist() == np.maximum(student, flipped).tolist()
    assert assess_effects(deltas, tokens, seed=0, comparisons=26).p.tolist() == student.tolist(), "too few for flips"


def test_sign_flips_of_extreme_effects() -> None:
    deltas, _ = studies(np.random.default_rng(6), 1, 200, effect=1.0)
    assert sign_flips(deltas, seed=0, flips=999).p[0] == 1 / 1000
    assert sign_flips(np.zeros((2, 10)), seed=0, flips=100).p.tolist() == [1.0, 1.0]
    assert sign_flips(np.ones((3, 4)), seed=0).critical == math.inf, "four units exclude nothing"


def test_null_band_matches_enumerated_flips() -> None:
    """All 256 flips of eight documents; a plan of large effect does not widen the others' bands, but skewness does."""
    draw, tokens = np.random.default_rng(7), np.full(8, 9.0)
    deltas = np.sort(draw.normal(size=(3, 8)))
    deltas = deltas - deltas[:, ::-1] + np.array([[0.0], [0.0], [9.0]])
    every = np.array(np.meshgrid(*[[-1.0, 1.0]] * 8)).reshape(8, -1).T
    flipped = every[:, None] * deltas
    t = np.abs(flipped.mean(axis=2)) / stats.sem(flipped, axis=2)
    critical = sign_flips(deltas, seed=0).critical
    assert critical == pytest.approx(np.quantile(t.max(axis=1), 0.95), rel=0.05)
    band = assess_effects(deltas, tokens, seed=0).band
    assert band == pytest.approx(critical * deltas.std(axis=1, ddof=1) * 8**0.5 / tokens.sum())
    few = assess_effects(deltas, tokens, seed=0, comparisons=30).band
    assert few / band == pytest.approx(stats.t.ppf(1 - 0.05 / 60, 7) / critical)
    skew = np.where(np.arange(8) == 7, deltas + 5.0, deltas)
    wider = assess_effects(skew, tokens, seed=0).band
    assert (wider > 1.3 * sign_flips(skew, seed=0).critical * skew.std(axis=1, ddof=1) * 8**0.5 / tokens.sum()).all()
    assert assess_effects(-skew, tokens, seed=0).band == pytest.approx(assess_effects(skew, tokens, seed=0).band)


@pytest.mark.parametrize(("plans", "lengths"), [(1, 0.0), (12, 0.0), (90, 0.0), (12, 1.0)])
@pytest.mark.parametrize("units", [8, 10, 16, 40, 127])
def test_resolution_matches_the_test_used(units: int, plans: int, lengths: float) -> None:
    """Found in 0.75 to 0.85 of studies of normal effects; a fast case has fewer studies and wider bounds."""
    generator, found, parts = np.random.default_rng([plans, units]), 0.0, by_tier(fast=10, nightly=60)
    for part in range(parts):
        tokens = np.exp(lengths * generator.normal(size=units))
        studies = generator.normal(size=(by_tier(fast=10, nightly=25), units)) * tokens
        sizes = assess_effects(studies, tokens, seed=part, comparisons=plans).mde
        size = float(np.sqrt(np.square(sizes).mean()))
        p = assess_effects(studies + size * tokens, tokens, seed=part, comparisons=plans).p
        found += share(p < 0.05 / plans) / parts
    print(f"{units} units of lengths {lengths:g}, {plans} plans: the printed effect is found in {found:.3f}")
    assert abs(found - 0.8) <= by_tier(fast=13, nightly=5) / 100


def test_resolution_of_many_units_matches_students_t() -> None:
    expected = stats.t.ppf(1 - 0.05 / 24, 399) + stats.t.ppf(0.8, 399)
    assert minimum_detectable_effect([1.0, 2.0], [400, 400], comparisons=12) == pytest.approx([expected, 2 * expected])
    near, far = minimum_detectable_effect([1.0, 1.0], [127, 128], comparisons=12)
    assert near == pytest.approx(far, rel=0.02)


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("units", "normal", "exponential"),
    [(8, (93, 87), (89, 81)), (16, (93, 89), (90, 85)), (40, (93, 92), (91, 89)), (148, (94, 94), (93, 92))],
)
def test_intervals_have_the_stated_coverage(units: int, normal: tuple[int, int], exponential: tuple[int, int]) -> None:
    """Percent, of the bootstrap and of Student's interval, for log-normal lengths."""
    generator, count = np.random.default_rng(units), 300
    for stated, draw in (
        (normal, generator.standard_normal),
        (exponential, lambda size: generator.exponential(size=size) - 1),
    ):
        covered = np.zeros(2)
        for part in range(count):
            tokens = np.maximum(8, generator.lognormal(5, 1, units)).round()
            effects = draw((20, units)) * tokens
            for at, own in enumerate(
                (paired_bootstrap(effects, tokens, seed=part, resamples=1000), student_interval(effects, tokens))
            ):
                covered[at] += ((own.low <= 0) & (own.high >= 0)).mean() / count
        assert 100 * covered == pytest.approx(stated, abs=2)


@pytest.mark.nightly
@pytest.mark.parametrize("units", [16, 40, 148])
@pytest.mark.parametrize(
    ("skewness", "lengths", "growth"),
    [
        (0, 0.0, 1),
        (0, 1.0, 1),
        (2, 0.0, 1),
        *((2, spread, power) for spread in (0.4, 0.7, 1.0) for power in (0.5, 1)),
        (2, 1.0, 0),
    ],
)
def test_familywise_error_of_skewed_effects_is_at_most_5_percent(
    skewness: int, lengths: float, growth: float, units: int
) -> None:
    """Gamma effects of mean zero that grow with a power of the length. The rate of any of 30 plans is at most 7 %."""
    generator, wrong, count = np.random.default_rng(units), 0, 30_000
    for part in range(count // 500):
        tokens = np.maximum(8, generator.lognormal(5, lengths, units)) if lengths else np.full(units, 150.0)
        shape = (2 / skewness) ** 2 if skewness else 0.0
        own = generator.gamma(shape, size=(500, units)) - shape if skewness else generator.normal(size=(500, units))
        p = assess_effects(own * tokens**growth, tokens, seed=part, comparisons=30).p
        wrong += int((p < 0.05 / 30).sum())
    rate = 1 - (1 - wrong / count) ** 30
    print(f"skewness {skewness:g}, {units} documents, lengths {lengths:g}, growth {growth:g}: {rate:.3f} of studies")
    assert rate <= 0.07


@pytest.mark.parametrize("values", [[0.2] * 12, [1.0] * 8])
def test_equal_units_have_no_interval(values: list[float]) -> None:
    assert mean_interval(values) == (pytest.approx(values[0]), None, None)
    assert mean_interval([*values, 0.0])[1] is not None


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
def test_holm_matches_its_definition(p: list[float], adjusted: list[float]) -> None:
    np.testing.assert_allclose(holm(p), adjusted)


@pytest.mark.parametrize(("successes", "trials"), [(0, 12), (5, 12), (12, 12), (731, 1000)])
def test_wilson_matches_scipy(successes: int, trials: int) -> None:
    estimate = wilson([successes], trials)
    expected = stats.binomtest(successes, trials).proportion_ci(0.95, method="wilson")
    np.testing.assert_allclose([estimate.low[0], estimate.high[0]], [expected.low, expected.high], atol=1e-12)
    assert estimate.value[0] == successes / trials


def test_paired_proportions_match_their_formula_with_positive_width() -> None:
    found = paired_proportions([9, 0], [3, 0], 60)
    up, down = 10 / 62, 4 / 62
    reach = 1.959964 * math.sqrt((up + down - (up - down) ** 2) / 62)
    assert (found.value[0], found.low[0], found.high[0]) == pytest.approx((0.1, up - down - reach, up - down + reach))
    assert found.value[1] == 0
    assert found.low[1] == -found.high[1] < 0 < found.error[1]


@pytest.mark.parametrize(
    ("numerators", "denominators", "part"),
    [
        ([[1.0, 2.0]], [1.0, 2.0, 3.0], r"got \(1, 2\) and \(3,\)"),
        ([[1.0]], [1.0], "at least 2 documents or windows, got 1"),
        ([[1.0, math.nan]], [1.0, 1.0], "finite"),
        ([[1.0, 2.0]], [1.0, 0.0], "positive"),
    ],
)
def test_invalid_input_is_rejected(numerators: list[list[float]], denominators: list[float], part: str) -> None:
    for function in (ratio, standard_error, student_interval):
        with pytest.raises(MeasureError, match=part):
            function(numerators, denominators)
    with pytest.raises(MeasureError, match=part):
        paired_bootstrap(numerators, denominators, seed=0)
    with pytest.raises(MeasureError, match="at least 2"):
        minimum_detectable_effect([1.0], 1)
