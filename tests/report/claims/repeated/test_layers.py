"""Claims about single layers and about the middle, over many simulated sweeps of which the truth is known."""

from __future__ import annotations

from functools import partial

import pytest

from layerwise.report.claims.claim import stretch
from layerwise.results.rows import PlanRecord
from report.claims import truths
from report.claims.heterogeneity.test_layers import ALIKE, CORE, DAMAGE, DEPTH, FEW, damaged, effects
from report.claims.repeated.scanned import DEPTH as SCANNED
from report.claims.repeated.scanned import Effects, removed, scanned
from report.claims.truths import CONTRADICTED, NOT_SO, NULL, SUPPORTED
from report.synthetic import plan_records

test_the_core_is_judged_right = truths.simulated(
    {"vital": {SUPPORTED: (CORE,), CONTRADICTED: (ALIKE,), NULL: (DAMAGE,)}}, depth=DEPTH, together=True, nightly=True
)
test_too_little_text_contradicts_no_core = truths.seldom({"vital": {NOT_SO: (FEW,)}}, depth=DEPTH)

# Layers 14 and 17 of 30 are 5 and 6 of 12: the last of one half, and the first of the other.
LITTLE = {"layer5": 0.0, "layer6": 0.0}
SINGLE = {
    "superfluous": {
        SUPPORTED: (scanned(removed(0.3, 0.3, **LITTLE)),),
        NULL: (scanned(removed(0.0, 0.0)),),
        CONTRADICTED: (scanned(removed(0.3, 0.3)), scanned(removed(0.3, 0.3, layer5=0.0))),
    },
    "second_half": {
        SUPPORTED: (scanned(removed(0.3, 0.0, layer11=0.5)),),
        NULL: (scanned(removed(0.0, 0.0, layer0=3.0)),),
        CONTRADICTED: (scanned(removed(0.0, 0.3)), scanned(removed(0.3, 0.3))),
    },
}
test_single_layers_are_judged_right = truths.simulated(SINGLE, together=True)
test_one_run_of_single_layers = truths.found(SINGLE)

# The bound itself: neither answer may be given.
AT_BOUND = f"{SUPPORTED}, {NULL}; {CONTRADICTED}"
test_at_the_bound_nothing_is_said = truths.seldom(
    {
        "superfluous": {AT_BOUND: (scanned(removed(0.3, 0.3, layer5=0.05, layer6=0.05)),)},
        "second_half": {AT_BOUND: (scanned(removed(0.3, 0.05)),)},
        "permuted": {AT_BOUND: (lambda run: reordered(0.2, 1.0)(run),)},
    }
)


def records() -> tuple[PlanRecord, ...]:
    """The plans of the Painters, without those that are the model as trained."""
    return tuple(record for record in plan_records(SCANNED, ("painters",)) if record.plan != "0-11")


def reordered(random: float, skip: float, noise: float = 0.05) -> truths.Truth:
    """Random orders cost so much on average, each draw as much more or less as it happens to, and absence so much."""
    every = records()

    def drawn(draw: object) -> Effects:
        own = {record.plan: 0.5 for record in every}
        for record in every:
            if record.strategy == "skip":
                own[record.plan] = skip
            elif record.strategy == "random":
                own[record.plan] = random * (1 + 0.1 * draw.standard_normal())  # type: ignore[attr-defined]
        return own

    return scanned(drawn, noise=noise, records=every)


MIDDLE = {
    "permuted": {
        SUPPORTED: (reordered(0.1, 1.0),),
        NULL: (reordered(0.05, 0.1),),
        CONTRADICTED: (reordered(1.0, 1.0), reordered(0.4, 2.0)),
    }
}
test_the_middle_is_judged_right = truths.simulated(MIDDLE, together=True)
test_one_run_of_the_middle = truths.found(MIDDLE)


def test_the_middle_is_the_greatest_window_of_half_the_depth_at_most() -> None:
    """Of the windows of 3, 5, 7, 9 and 11 layers of 12."""
    assert [row.value for row in reordered(0.1, 1.0)(0) if row.metric == "layers"] == [5.0]


@pytest.mark.nightly
@pytest.mark.parametrize("way", [-1, 1])
@pytest.mark.parametrize("rule", ["superfluous", "second_half", "permuted"])
def test_a_cost_of_the_printed_resolution_beside_the_bound_is_seen(rule: str, way: int) -> None:
    """What 80 of 100 runs are said to see, added to the bound or taken from it."""
    noise = 0.1
    bound = 0.2 if rule == "permuted" else 0.05
    metric = {"superfluous": "delta_nll", "second_half": "second", "permuted": "random"}[rule]

    def at(cost: float) -> truths.Truth:
        if rule == "permuted":
            return reordered(cost, 1.0, noise)
        named = (
            {"layer5": cost, "layer6": 0.0} if rule == "superfluous" and way > 0 else {"layer5": cost, "layer6": cost}
        )
        return scanned(removed(0.5, 0.5, **named) if rule == "superfluous" else removed(0.5, cost), noise=noise)

    seen = 0.0
    for _ in range(3):  # where more costs more it also varies more, and what is printed is that of the truth itself
        seen = truths.printed(at(bound + way * seen), metric) * (stretch(2) if rule == "superfluous" else 1.0)
    truths.tells(rule, at(bound + way * seen), SCANNED, CONTRADICTED if way > 0 else SUPPORTED)


@pytest.mark.nightly
def test_a_core_of_the_printed_resolution_is_seen() -> None:
    """The range exceeds twice the rest by what 80 of 100 runs are said to see."""
    rest, noise = 0.1, 0.2
    own = partial(damaged, noise=noise)
    limits = [
        score.mde or 0.0
        for run in range(40)
        for score in own(run, skip=effects(2 * rest, rest))
        if (score.layer, score.other) == (8, 11)
    ]
    seen = sum(limits) / len(limits)
    truths.tells("vital", partial(own, skip=effects(2 * rest + seen, rest)), DEPTH, SUPPORTED)
    truths.tells("vital", partial(own, skip=effects(2 * rest - seen, rest)), DEPTH, CONTRADICTED)
