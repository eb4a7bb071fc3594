"""Scans of repeats, over many simulated sweeps: the best of many is judged where it was not chosen."""

from __future__ import annotations

import numpy as np
import pytest

from report.claims import truths
from report.claims.repeated.scanned import DAMPED, DEPTH, PLAIN, Effects, scanned
from report.claims.truths import CONTRADICTED, NOT_SO, NULL, SUPPORTED, Truth

LONG = 200
"""Documents that are enough to exclude a gain of 0.01 for each of 78 repeats."""


def plain(rest: float, gain: float | None = None, **of: float) -> Truth:
    """Every repeat costs `rest`, but one, another one in every run, gains."""
    return scanned(lambda draw: _with_one(PLAIN, rest, gain, draw), **of)  # type: ignore[arg-type]


def damped(loops: float, rest: float, gain: float | None = None, **of: float) -> Truth:
    """Plain repeats cost `loops`, damped ones `rest`, but one that gains."""

    def drawn(draw: np.random.Generator) -> Effects:
        return dict.fromkeys(PLAIN, loops) | _with_one(DAMPED, rest, gain, draw)

    return scanned(drawn, **of)  # type: ignore[arg-type]


def _with_one(plans: tuple[str, ...], rest: float, gain: float | None, draw: np.random.Generator) -> dict[str, float]:
    own = dict.fromkeys(plans, rest)
    return own if gain is None else own | {plans[draw.integers(len(plans))]: -gain}


SCANS = {
    "some_repeat": {
        SUPPORTED: (plain(0.1, 0.06), plain(0.0, 0.06)),
        NULL: (plain(0.0, documents=LONG, noise=0.02),),
        CONTRADICTED: (plain(0.1), plain(0.4)),
    },
    "damping": {
        SUPPORTED: (damped(0.3, 0.05, 0.06), damped(0.3, 0.0, 0.06)),
        NULL: (damped(0.3, 0.05), damped(0.3, 0.0, documents=LONG, noise=0.02)),
        CONTRADICTED: (damped(0.3, 0.3), damped(0.3, 0.5)),
    },
}
test_scans_are_judged_right = truths.simulated(SCANS, together=True, nightly=True)

# A scan in which nothing gains, on a text that is too short to exclude that something does.
NOTHING_GAINS = {
    "some_repeat": {SUPPORTED: (plain(0.0), plain(0.0, noise=0.3), plain(0.01, documents=24, noise=0.2))},
    "damping": {SUPPORTED: (damped(0.3, 0.0), damped(0.3, 0.0, noise=0.3), damped(0.3, 0.01, documents=24, noise=0.2))},
}
test_a_scan_without_a_gain_shows_none = truths.seldom(NOTHING_GAINS, nightly=False)
test_a_gain_that_counts_is_not_excluded = truths.seldom(
    {
        "some_repeat": {NOT_SO: (plain(0.1, 0.01), plain(0.1, 0.02, noise=0.2))},
        "damping": {NOT_SO: (damped(0.3, 0.1, 0.01), damped(0.3, 0.1, 0.02, noise=0.2))},
    }
)


@pytest.mark.parametrize("rule", SCANS)
@pytest.mark.parametrize("verdict", [SUPPORTED, NULL, CONTRADICTED])
def test_one_scan_of_each_kind(rule: str, verdict: str) -> None:
    claim = truths.claim_of(rule, SCANS[rule][verdict][0](0), DEPTH)
    assert claim.verdict == verdict, claim.line
    assert claim.power.startswith("Of 100 such runs 80 would choose and confirm a gain of ")


def test_the_best_is_judged_where_it_was_not_chosen() -> None:
    """Among 78 repeats that do nothing the best looks like a gain, and is none on the half that did not choose."""
    best = [row.value for run in range(20) for row in plain(0.0, noise=0.3)(run) if row.metric == "best"]
    lowest = [row.value for run in range(20) for row in plain(0.0, noise=0.3)(run) if row.metric == "least"]
    assert max(lowest) < -0.05
    assert abs(float(np.mean(best))) < 3 * 0.3 * 24**-0.5 * 20**-0.5


@pytest.mark.nightly
@pytest.mark.parametrize("rest", [0.0, 0.1])
@pytest.mark.parametrize("rule", SCANS)
def test_a_gain_of_the_printed_resolution_is_chosen_and_confirmed(rule: str, rest: float) -> None:
    def world(gain: float) -> Truth:
        return plain(rest, gain, noise=0.1) if rule == "some_repeat" else damped(0.3, rest, gain, noise=0.1)

    truths.tells(rule, world(truths.printed(world(0.05), "best")), DEPTH, SUPPORTED)
