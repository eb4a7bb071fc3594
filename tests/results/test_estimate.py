"""Estimates of a row: an extreme effect is claimed only if the data show it."""

import numpy as np
import pytest

from layerwise.measure.stats.statistics import paired_bootstrap
from layerwise.results.estimate import is_extreme
from layerwise.results.rows import Score
from tier import by_tier

LAYERS, DOCUMENTS = 12, 48


@pytest.mark.parametrize("noisy", [LAYERS, 2, 1], ids=["all-layers", "two-layers", "one-layer"])
def test_equal_layers_have_no_extreme(noisy: int) -> None:
    """Of layers with equal effects, the highest estimate is called the highest in at most 5 % of texts.

    An interval that overlaps no other is rarer the more layers have a chance to be the highest. With a single noisy
    layer it is as frequent as a false positive of one test.
    """
    draw, studies = np.random.default_rng(0), by_tier(fast=100, nightly=1000)
    tokens = draw.integers(20, 80, DOCUMENTS).astype(np.float64)
    spread = np.where(np.arange(LAYERS) < noisy, 1.0, 0.01)[:, None]
    claims = 0
    for study in range(studies):
        shared = draw.exponential(size=DOCUMENTS) - 1
        effects = 0.1 + shared + spread * (draw.exponential(size=(LAYERS, DOCUMENTS)) - 1)
        found = paired_bootstrap(effects * tokens, tokens, seed=study, resamples=400)
        rows = [Score("effect", "delta_nll", *estimate.row()) for estimate in found.each()]
        *others, highest = sorted(rows, key=lambda row: row.value)
        claims += is_extreme(highest, others)
    assert claims <= 0.05 * studies + 2 * (0.05 * 0.95 * studies) ** 0.5


def test_a_clear_extreme_is_found() -> None:
    rows = [Score("effect", "delta_nll", value, value - 0.2, value + 0.2) for value in (-0.5, 0.1, 0.2, 2.0)]
    assert is_extreme(rows[-1], rows[:-1])
    assert is_extreme(rows[0], rows[1:])
    assert not is_extreme(rows[1], rows[2:])
    assert not is_extreme(rows[-1], [Score("effect", "delta_nll", 0.1)])
