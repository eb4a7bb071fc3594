"""The claim of lossless merging over many simulated runs of every truth."""

from collections.abc import Iterable

import numpy as np
import pytest

from layerwise.measure.contrasts.shuffled import compute_merging_loss, contrast_merging
from layerwise.measure.interventions.accuracy import Predictions
from layerwise.results.rows import Score
from page.claims.trainings import SHARED, World
from page.claims.truths import (
    CONTRADICTED,
    INCONCLUSIVE,
    NULL,
    SUPPORTED,
    SUPPORTED_AND_CONTRADICTED,
    Truth,
    judge_rows,
    make_rare_test,
    make_simulated_test,
)

CHANCE = 0.1
PLAIN = World(seeds=6, images=960)


def truth(loss: float, baseline: float | None, world: World = PLAIN, top: float = 0.62, draws: int = 30) -> Truth:
    def simulate(run: int) -> Iterable[Score]:
        draw = np.random.default_rng(run)
        difficulty = SHARED**0.5 * draw.standard_normal(world.images)
        losses = {("layershuffle", "random"): (top, loss)}
        if baseline is not None:
            losses["baseline", "own-depth"] = (0.8, baseline)
        rows = []
        for (variant, kind), (level, lost) in losses.items():
            own = world.draw_seed_effects(draw, world.seeds)
            # A merged model has layers of all members in unequal numbers, and its own variation.
            mixed = draw.dirichlet(np.full(world.seeds, 4.0), draws) @ own + 0.01 * draw.standard_normal(draws)
            members = world.outcomes(draw, difficulty, level + own)
            models = world.outcomes(draw, difficulty, level - lost + mixed)
            rows += contrast_merging(variant, kind, members, models, CHANCE, batch=world.batch)
        return rows

    return simulate


SKEWED = World(seeds=8, images=640, spread=0.02, skewed=True)


test_every_verdict_is_the_right_one = make_simulated_test(
    {
        "merging": {
            SUPPORTED: (truth(0.01, 0.5), truth(0.01, 0.5, SKEWED)),
            CONTRADICTED: (truth(0.15, 0.5), truth(0.15, 0.01, SKEWED)),
            NULL: (truth(0.0, 0.0),),
            INCONCLUSIVE: (
                truth(0.0, 0.5, top=0.1),  # nothing was learned
                truth(0.03, 0.06, World(seeds=2, images=160, spread=0.03), draws=4),
                truth(0.0, None),  # no null
            ),
        }
    }
)
test_at_the_edge_it_is_neither_lossless_nor_lossy = make_rare_test(
    {
        "merging": {
            SUPPORTED_AND_CONTRADICTED: (truth(0.05, 0.5), truth(0.05, 0.5, SKEWED)),
            f"{SUPPORTED}; {NULL}": (truth(0.0, 0.05),),
        }
    }
)


def test_the_error_of_a_loss_includes_models_draws_and_images() -> None:
    hits = (np.random.default_rng(4).random((7, 64)) < np.linspace(0.3, 0.9, 7)[:, None]).astype(float)
    outcomes = [Predictions(each, None, 1.0 - each, np.ones(64)) for each in hits]
    rows = compute_merging_loss(outcomes[:3], outcomes[3:], batch=4)
    gaps = (hits[:3].mean(axis=0) - hits[3:].mean(axis=0)).reshape(16, 4).mean(axis=1)
    parts = [np.var(hits[:3].mean(axis=1), ddof=1) / 3, np.var(hits[3:].mean(axis=1), ddof=1) / 4]
    variance = sum(term.variance for term in rows.terms)
    assert variance == pytest.approx(sum(parts) + np.var(gaps, ddof=1) / 16)


def test_other_variants_and_kinds_decide_nothing() -> None:
    outcomes = PLAIN.outcomes(np.random.default_rng(0), np.zeros(960), np.full(3, 0.6))
    assert contrast_merging("layershuffle", "own-depth", outcomes, outcomes, CHANCE, batch=60) == []
    assert contrast_merging("layerdrop", "random", outcomes, outcomes, CHANCE, batch=60) == []
    assert judge_rows("merging", [], 12).verdict == "not measured"
