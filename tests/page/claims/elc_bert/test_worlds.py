"""The ELC-BERT claims over many simulated studies of every truth."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from statistics import fmean

import numpy as np
import pytest

from layerwise.measure.contrasts.trainings import contrast_pattern as mass
from layerwise.measure.contrasts.variants import contrast_variants
from layerwise.measure.weights.layer_weights import seed_agreement_scores, uniformity_rows
from layerwise.models.elc.configuration import first_values
from layerwise.results.rows import Score
from page.claims import truths
from page.claims.truths import CONTRADICTED, INCONCLUSIVE, NULL, SUPPORTED, Truth, check_verdicts

NOISE = 0.004
"""Standard deviation between trainings of one variant in nats, apart from the seed's common effect."""


def losses(gain: float, learned: float | None, seeds: int = 5, noise: float = NOISE, skewed: bool = False) -> Truth:
    return _study("masked_lm", "nll", -1.0, gain, learned, seeds, noise, skewed)


def pairs(gain: float, learned: float | None, seeds: int = 5, noise: float = 0.002, skewed: bool = False) -> Truth:
    return _study("pairs", "accuracy", 1.0, gain, learned, seeds, noise, skewed)


def _study(
    measure: str, metric: str, better: float, gain: float, learned: float | None, seeds: int, noise: float, skewed: bool
) -> Truth:
    variants = {"ltg": 0.0, "elc": gain, **({} if learned is None else {"elc-frozen": gain - learned})}
    terms = "seconds" if measure == "masked_lm" else "tokens"

    def rows(run: int) -> Iterable[Score]:
        draw = np.random.default_rng(run)
        shared = 5 * noise * draw.standard_normal(seeds)  # order of the text and masks, common to all variants
        found = []
        for variant, better_by in variants.items():
            own = draw.exponential(size=seeds) - 1.0 if skewed else draw.standard_normal(seeds)
            values = 0.7 + shared + noise * own + better * better_by
            found += [Score(measure, metric, value, variant=variant, seed=seed) for seed, value in enumerate(values)]
        return [*found, *contrast_variants(found, terms), Score("pairs", "accuracy", 0.7, 0.65, 0.75, variant="ltg")]

    return rows


DEPTH = 12
BIASED, EQUAL = "biased", "zero"
LEARNED = Score("pairs", "accuracy", 0.7, 0.65, 0.75, variant="elc")


def start(initialization: str) -> np.ndarray:
    found = np.zeros((DEPTH, DEPTH + 1))
    for reader in range(DEPTH):
        found[reader, : reader + 1] = first_values(initialization, reader + 1, softmax=False)
    return found


def trained(run: int, initialization: str, *, ends: float, shared: float, seeds: int, own: float = 0.3) -> np.ndarray:
    """Training adds `ends` to the scalars of embedding and previous layer, a shared pattern, and one per seed."""
    draw = np.random.default_rng(run)
    common = shared * draw.standard_normal((DEPTH, DEPTH + 1))
    alone = own * (draw.standard_normal((seeds, DEPTH, DEPTH + 1)) + draw.standard_normal((seeds, 1, DEPTH + 1)))
    first = start(initialization)
    moved = np.log(first, out=np.zeros_like(first), where=first > 0) + common + alone
    moved[:, :, 0] += ends
    moved[:, np.arange(DEPTH), np.arange(DEPTH)] += ends
    weights = np.exp(moved) * (first > 0)
    return np.asarray(weights / weights.sum(axis=2, keepdims=True))


def masses(initialization: str, ends: float, seeds: int = 5, own: float = 0.3) -> Truth:
    def rows(run: int) -> Iterable[Score]:
        weights = trained(run, initialization, ends=ends, shared=0.2, seeds=seeds, own=own)
        return [*mass("elc", weights, start(initialization)), LEARNED]

    return rows


def uniformity(initialization: str, ends: float, own: float, shared: float = 0.0) -> Truth:
    def rows(run: int) -> Iterable[Score]:
        weights = trained(run, initialization, ends=ends, shared=shared, seeds=5, own=own)
        return [*uniformity_rows("elc", weights, start(initialization)), LEARNED]

    return rows


def agreements(initialization: str, shared: float, seeds: int = 5) -> Truth:
    def rows(run: int) -> Iterable[Score]:
        weights = trained(run, initialization, ends=0.0, shared=shared, seeds=seeds)
        return [*seed_agreement_scores("elc", weights, initial=start(initialization), draws=100, seed=run), LEARNED]

    return rows


test_every_verdict_is_the_right_one = truths.make_simulated_test(
    {
        "worth": {
            SUPPORTED: (losses(0.025, 0.025), losses(0.03, 0.03, seeds=8, skewed=True)),
            CONTRADICTED: (losses(-0.03, 0.02), losses(-0.04, 0.02, skewed=True)),
            # The backbone does as well, or held weights do.
            NULL: (losses(0.0, 0.0, noise=0.003), losses(0.03, 0.0, noise=0.003)),
            INCONCLUSIVE: (losses(0.012, 0.012, seeds=2), losses(0.03, None)),
        },
        "grammar": {
            SUPPORTED: (pairs(0.02, 0.02),),
            CONTRADICTED: (pairs(-0.02, 0.01),),
            NULL: (pairs(0.0, 0.0, noise=0.001), pairs(0.02, 0.0, noise=0.001, seeds=8)),
            INCONCLUSIVE: (pairs(0.006, 0.006, seeds=3, noise=0.01),),
        },
        "pattern": {
            SUPPORTED: (masses(BIASED, 0.8), masses(EQUAL, 1.0, seeds=3)),
            CONTRADICTED: (masses(EQUAL, -1.5), masses(BIASED, -3.0)),
            # It began so, or all shares are equal.
            NULL: (masses(BIASED, 0.0, seeds=8, own=0.15), masses(EQUAL, 0.0, seeds=8, own=0.15)),
        },
        "uniform": {
            SUPPORTED: (uniformity(EQUAL, 1.0, 0.3), uniformity(BIASED, 1.0, 0.3)),
            CONTRADICTED: (uniformity(EQUAL, 0.0, 0.03),),
            NULL: (uniformity(BIASED, 0.0, 0.05),),
        },
    }
)
test_so_is_every_verdict_near_its_bar = truths.make_simulated_test(
    {
        "pattern": {INCONCLUSIVE: (masses(BIASED, 0.3, seeds=2, own=1.2),)},
        "alike": {
            SUPPORTED: (agreements(BIASED, 0.6), agreements(EQUAL, 0.6, seeds=3)),
            NULL: (agreements(BIASED, 0.0, seeds=8),),
            CONTRADICTED: (agreements(EQUAL, 0.0, seeds=8),),
        },
    },
    nightly=True,
)


@pytest.mark.nightly
@pytest.mark.parametrize("seeds", [3, 8])
@pytest.mark.parametrize(
    ("rule", "study", "margin", "noise"), [("worth", losses, 0.01, NOISE), ("grammar", pairs, 0.005, 0.002)]
)
def test_a_gain_of_the_printed_resolution_is_detected(
    rule: str, study: Callable[..., Truth], margin: float, noise: float, seeds: int
) -> None:
    rows = [row for run in range(200) for row in study(0.02, 0.02, seeds, noise)(run) if row.against == "ltg"]
    seen = max(margin, fmean(row.mde for row in rows if row.variant == "elc" and row.mde is not None))
    check_verdicts(rule, study(seen, 10 * seen, seeds, noise), DEPTH, SUPPORTED, (), runs=1_200)


def test_time_decides_and_not_steps() -> None:
    steps = [replace(row, unit="tokens") if row.unit else row for row in losses(0.03, 0.03)(0)]
    assert truths.judge_rows("worth", steps, 12).verdict == "not measured"
