"""The claims of graceful degradation and a shared space, on planted curves and cosines."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from layerwise.measure.activations.similarity import DocumentCosines, middle_states, same_space
from layerwise.measure.stats.statistics import Numbers
from layerwise.results.rows import PlanRecord, Score
from page.claims import truths
from page.claims.swept import Cost, swept
from page.claims.truths import CONTRADICTED, NULL, SUPPORTED, Truth
from tier import by_tier

DEEP = 12  # windows of 3, 5, 7, 9 and 11 layers
OF_DEEP = 11
STATED = 16
MUCH = {"documents": 200, "noise": 0.03, "draws": 0.01}
Rise = Callable[[int], float]
"""Number of layers to loss increase."""


def absence(layers: int) -> float:
    return layers / OF_DEEP


def smooth(power: float, scale: float = 0.7) -> Rise:
    return lambda layers: scale * ((layers - 1) / (OF_DEEP - 1)) ** power


def abrupt(at: int, taken: float = 0.9, scale: float = 0.7) -> Rise:
    return lambda layers: (1 - taken) * smooth(1, scale)(layers) + taken * scale * (layers >= at)


def orders(reverse: Rise, random: Rise, skip: Rise = absence) -> Cost:
    rises = {"reverse": reverse, "random": random, "skip": skip}

    def cost(record: PlanRecord) -> float:
        rise = rises.get(record.strategy)
        return 0.0 if rise is None else rise(record.affected)

    return cost


STRAIGHT = orders(smooth(1), smooth(1, 0.5))
WORLDS = {
    SUPPORTED: (STRAIGHT, orders(smooth(2), smooth(3)), orders(smooth(1), smooth(0.7, 0.5))),  # convex, concave
    NULL: (orders(absence, smooth(1, 0.5)),),  # as absence
    CONTRADICTED: (
        # Abrupt in the middle, at the end, both, and worse than skipping.
        orders(abrupt(7), smooth(1, 0.5)),
        orders(smooth(1), abrupt(11)),
        orders(abrupt(9), abrupt(5)),
        orders(smooth(1, 1.5), smooth(1, 0.5)),
    ),
}


def truth(cost: Cost, **settings: float) -> Truth:
    return swept(["graceful"], cost, depth=DEEP, **settings)  # type: ignore[arg-type]


STATES = np.arange(STATED + 1)
DISTANCE = np.abs(STATES[:, None] - STATES)
INSIDE = np.isin(STATES, middle_states(STATED))
ZONE = np.outer(INSIDE, INSIDE).astype(float)
LATE = (STATES[:, None] + STATES) / (2 * STATED)


def cosines(cosine: Numbers, elsewhere: Numbers | float = 0.0, documents: int = 24, spread: float = 0.2) -> Truth:
    def truth(run: int) -> list[Score]:
        draw = np.random.default_rng(run)
        tokens = np.round(draw.lognormal(4.0, 0.7, documents)) + 1
        tail = draw.standard_t(4, documents)[:, None, None]
        error = 0.02 * draw.standard_normal((documents, STATED + 1, STATED + 1))
        own = cosine + spread * tail * (ZONE - 0.5) + error
        other = np.broadcast_to(elsewhere, own.shape)
        weights = tokens[:, None, None]
        found = DocumentCosines(weights * own, weights * other, tokens)
        return same_space(found, found, seed=run, resamples=200)

    return truth


SPACES = {
    SUPPORTED: ((0.3 + 0.5 * ZONE,), (0.9**DISTANCE * (0.5 + 0.5 * ZONE),)),  # zones, and distance too
    # Distance, a trend too, or what other documents share.
    NULL: ((0.9**DISTANCE,), (0.9**DISTANCE - 0.4 * LATE,), (0.3 + 0.5 * ZONE, 0.5 * ZONE)),
    CONTRADICTED: ((np.full_like(ZONE, 0.8),), (0.8 - 0.3 * ZONE,)),  # all alike, the middle less alike
}


CURVES = {"graceful": {kind: [truth(cost, **MUCH) for cost in costs] for kind, costs in WORLDS.items()}}
CLEAR = {
    "same_space": {
        kind: [cosines(*world, documents=200, spread=0.02) for world in worlds] for kind, worlds in SPACES.items()
    }
}
test_a_planted_curve_is_found = truths.found(CURVES, depth=DEEP)
test_planted_cosines_are_found = truths.found(CLEAR, depth=STATED)
test_what_was_planted_is_found_in_95_of_100 = truths.simulated(
    CURVES, depth=DEEP, least=0.95, runs=by_tier(fast=2, nightly=100)
)
test_a_space_is_told = truths.simulated(
    {
        "same_space": {
            kind: [cosines(*world, documents=200, spread=0.05) for world in worlds] for kind, worlds in SPACES.items()
        }
    },
    depth=STATED,
    nightly=True,
)


def test_too_few_steps_and_no_intervals_decide_nothing() -> None:
    shallow = truths.claim_of("graceful", swept(["graceful"], STRAIGHT, depth=10)(0), 10)
    assert shallow.verdict == "not measured"
    few = cosines(0.3 + 0.5 * ZONE, documents=7)
    for bare in (
        truths.claim_of("graceful", truth(STRAIGHT, documents=7)(0), DEEP),
        truths.claim_of("same_space", few(0), STATED),
    ):
        assert bare.verdict == "inconclusive"
        assert "fewer than 8 documents" in bare.answer


def test_a_random_order_that_is_not_resolved_asks_for_more_draws() -> None:
    rows = [
        replace(row, low=row.value - 1, high=row.value + 1)
        if (row.metric, row.strategy) == ("excess", "random")
        else row
        for row in truth(STRAIGHT, **MUCH)(0)
    ]
    claim = truths.claim_of("graceful", rows, DEEP)
    assert claim.verdict == "inconclusive"
    assert claim.answer == "Intervals of random order allow both answers: it takes more text, or more draws."
