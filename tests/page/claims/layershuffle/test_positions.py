"""The claim that layers know their position, over many simulated runs of every truth."""

from collections.abc import Iterable

import numpy as np

from layerwise.measure.contrasts.shuffled import compute_shortfall, contrast_positions
from layerwise.measure.interventions.survey import Survey
from layerwise.results.rows import Score
from page.claims.truths import (
    CONTRADICTED,
    INCONCLUSIVE,
    NULL,
    SUPPORTED,
    SUPPORTED_AND_CONTRADICTED,
    Truth,
    make_rare_test,
    make_simulated_test,
)

DEPTH = 12


def answers(draw: np.random.Generator, accuracy: float, images: int) -> dict[int, np.ndarray]:
    counts = np.full((DEPTH, 16), images // 16)
    # Few degrees skew the beta: most positions are read without error, a few not at all.
    alike = draw.beta(4 * accuracy, 4 * (1 - accuracy), size=counts.shape)
    return {
        position: np.array([draw.binomial(counts[position], alike[position]), counts[position]], float)
        for position in range(DEPTH)
    }


def truth(
    own_accuracy: float, probed_accuracy: float | None, seeds: int = 3, images: int = 960, spread: float = 0.0005
) -> Truth:
    def rows(run: int) -> Iterable[Score]:
        draw = np.random.default_rng(run)

        def seed(accuracy: float) -> dict[int, np.ndarray]:
            return answers(draw, float(np.clip(accuracy + spread * draw.standard_normal(), 0.01, 0.9999)), images)

        variants = {"layershuffle-predict": {n: Survey(DEPTH, {}, positions=seed(own_accuracy)) for n in range(seeds)}}
        if probed_accuracy is not None:
            variants["baseline"] = {n: Survey(DEPTH, {}, probed=seed(probed_accuracy)) for n in range(seeds)}
        return list(contrast_positions(variants))

    return rows


test_every_verdict_is_the_right_one = make_simulated_test(
    {
        "positions": {
            SUPPORTED: (truth(0.9995, 0.6), truth(0.9995, 0.9)),
            CONTRADICTED: (truth(0.9, 0.6), truth(0.94, 0.99)),
            NULL: (truth(0.9995, 0.9995),),
            # The last has no baseline.
            INCONCLUSIVE: (truth(0.985, 0.97, seeds=2, images=64, spread=0.005), truth(0.9995, None)),
        }
    },
    depth=DEPTH,
)
test_at_the_edge_it_is_neither_there_nor_short = make_rare_test(
    {"positions": {SUPPORTED_AND_CONTRADICTED: [truth(0.9799, 0.6, seeds) for seeds in (3, 8)]}}, depth=DEPTH
)


def test_without_errors_the_interval_has_a_width() -> None:
    perfect = {0: np.array([[4.0] * 16, [4.0] * 16])}
    row = compute_shortfall([perfect, perfect]).row("positions", "short")
    assert row.low is not None
    assert row.high > 0.02  # of 64 images, so many may be wrong
