"""The claim of graceful degradation on planted curves: abrupt steps are found, and smooth curves are taken for none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from layerwise.results.rows import PlanRecord
from report.claims.swept import Cost, swept
from report.claims.truths import POWER, WRONG, Truth, claim_of, concluded, share
from tier import by_tier

DEPTH = 12  # windows of 3, 5, 7, 9 and 11 layers
WIDEST = 11
MUCH = {"documents": 200, "noise": 0.03, "draws": 0.01}
LITTLE = {"documents": 10, "shape": 0.5, "noise": 0.4}
SUPPORTED, NULL, CONTRADICTED = "supported", "explained by the null", "contradicted"

Rise = Callable[[int], float]
"""From the number of layers to what they cost."""


def absence(layers: int) -> float:
    return layers / WIDEST


def smooth(power: float, scale: float = 0.7) -> Rise:
    return lambda layers: scale * ((layers - 1) / (WIDEST - 1)) ** power


def abrupt(at: int, taken: float = 0.9, scale: float = 0.7) -> Rise:
    """Straight but for the step up to `at` layers, which takes the share `taken`."""
    return lambda layers: (1 - taken) * smooth(1, scale)(layers) + taken * scale * (layers >= at)


def orders(reverse: Rise, random: Rise, skip: Rise = absence) -> Cost:
    rises = {"reverse": reverse, "random": random, "skip": skip}

    def cost(record: PlanRecord) -> float:
        rise = rises.get(record.strategy)
        return 0.0 if rise is None else rise(record.affected)

    return cost


WORLDS = {
    "straight": (SUPPORTED, orders(smooth(1), smooth(1, 0.5))),
    "convex": (SUPPORTED, orders(smooth(2), smooth(3))),
    "concave": (SUPPORTED, orders(smooth(1), smooth(0.7, 0.5))),
    "as absence": (NULL, orders(absence, smooth(1, 0.5))),
    "abrupt in the middle": (CONTRADICTED, orders(abrupt(7), smooth(1, 0.5))),
    "abrupt at last": (CONTRADICTED, orders(smooth(1), abrupt(11))),
    "both abrupt": (CONTRADICTED, orders(abrupt(9), abrupt(5))),
    "worse than absence": (CONTRADICTED, orders(smooth(1, 1.5), smooth(1, 0.5))),
}
CASES = [pytest.param(kind, cost, id=name) for name, (kind, cost) in WORLDS.items()]


def truth(cost: Cost, **settings: float) -> Truth:
    return swept(["graceful"], cost, depth=DEPTH, **settings)  # type: ignore[arg-type]


@pytest.mark.parametrize(("kind", "cost"), CASES)
def test_what_was_planted_is_found(kind: str, cost: Cost) -> None:
    claim = claim_of("graceful", truth(cost, **MUCH)(0), DEPTH)
    assert claim.verdict == kind, claim.line
    assert claim.figures.endswith("tokens).")
    assert claim.power.startswith("Of 100 such runs 80 would see ")


@pytest.mark.simulated
@pytest.mark.parametrize(("kind", "cost"), CASES)
def test_what_was_planted_is_found_in_95_of_100(kind: str, cost: Cost) -> None:
    counts = concluded("graceful", truth(cost, **MUCH), DEPTH, by_tier(fast=2, full=100))
    assert share(counts, kind) >= 0.95, counts


@pytest.mark.nightly
@pytest.mark.parametrize("settings", [{}, LITTLE], ids=["some", "little"])
@pytest.mark.parametrize(("kind", "cost"), CASES)
def test_no_verdict_is_wrong_in_more_than_five_of_a_hundred_runs(
    kind: str, cost: Cost, settings: dict[str, float]
) -> None:
    counts = concluded("graceful", truth(cost, **settings), DEPTH, by_tier(fast=20, full=200))
    wrong = {verdict: share(counts, verdict) for verdict in (SUPPORTED, NULL, CONTRADICTED) if verdict != kind}
    assert max(wrong.values()) <= WRONG, counts


@pytest.mark.nightly
@pytest.mark.parametrize("settings", [MUCH, {"draws": 0.02}], ids=["much", "some"])
def test_an_abrupt_step_of_the_printed_size_is_seen(settings: dict[str, float]) -> None:
    """A step up to 7 of 11 layers that takes a share of the whole has 0.768 of it beyond the parabola."""
    size = 0.4
    for _ in range(2):  # the noise depends on the size a little
        pilot = truth(orders(abrupt(7, size / 0.768), smooth(1, 0.5)), **settings)
        printed = [claim_of("graceful", pilot(run), DEPTH).power.split()[7] for run in range(1000, 1010)]
        size = sum(map(float, printed)) / len(printed)
    world = truth(orders(abrupt(7, size / 0.768), smooth(1, 0.5)), **settings)
    counts = concluded("graceful", world, DEPTH, by_tier(fast=20, full=200))
    assert share(counts, CONTRADICTED) >= POWER, (size, counts)


def test_too_few_steps_and_no_intervals_decide_nothing() -> None:
    world = WORLDS["straight"][1]
    shallow = claim_of("graceful", swept(["graceful"], world, depth=10)(0), 10)
    assert shallow.verdict == "not measured"
    assert "a model of 11 layers and more" in shallow.why
    bare = claim_of("graceful", truth(world, documents=7)(0), DEPTH)
    assert bare.verdict == "not resolvable"
    assert "fewer than 8 documents" in bare.why


def test_a_random_order_that_is_not_resolved_asks_for_more_draws() -> None:
    rows = [
        replace(row, low=row.value - 1, high=row.value + 1) if row.metric.startswith("random_step") else row
        for row in truth(WORLDS["straight"][1], **MUCH)(0)
    ]
    claim = claim_of("graceful", rows, DEPTH)
    assert claim.verdict == "not resolvable"
    assert (
        claim.why == "Intervals of random order hold both answers: it takes more text, and of random orders more draws."
    )
