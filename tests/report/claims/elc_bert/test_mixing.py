"""The claims of worth: the losses of single trainings, over many studies of every truth."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import fmean

import numpy as np
import pytest

from layerwise.experiments.layer_weights_study.rows import difference_rows
from layerwise.results.rows import Score
from report.claims.truths import POWER, WRONG, Truth, claim_of, concluded, share, tells

NOISE = 0.004
"""By how much trainings of one arm differ in nats, beside what the seed gives to all arms."""


def losses(gain: float, learned: float | None, seeds: int = 5, noise: float = NOISE, skewed: bool = False) -> Truth:
    """Studies in which elc is better than ltg by `gain` nats in the same time, and than elc-frozen by `learned`."""
    return _study("masked_lm", "nll", -1.0, gain, learned, seeds, noise, skewed)


def pairs(gain: float, learned: float | None, seeds: int = 5, noise: float = 0.002, skewed: bool = False) -> Truth:
    """The same in accuracy on minimal pairs, at the same steps."""
    return _study("pairs", "accuracy", 1.0, gain, learned, seeds, noise, skewed)


def _study(
    measure: str, metric: str, better: float, gain: float, learned: float | None, seeds: int, noise: float, skewed: bool
) -> Truth:
    arms = {"ltg": 0.0, "elc": gain, "elc-seconds": gain, **({} if learned is None else {"elc-frozen": gain - learned})}

    def rows(run: int) -> Iterable[Score]:
        draw = np.random.default_rng(run)
        shared = 5 * noise * draw.standard_normal(seeds)  # the order of the text, the masks: the same for all arms
        found = []
        for arm, better_by in arms.items():
            own = draw.exponential(size=seeds) - 1.0 if skewed else draw.standard_normal(seeds)
            values = 0.7 + shared + noise * own + better * better_by
            found += [Score.of(measure, metric, value, arm=arm, seed=seed) for seed, value in enumerate(values)]
        return [*found, *difference_rows(found), Score.of("pairs", "accuracy", 0.7, 0.65, 0.75, arm="ltg")]

    return rows


BOTH = [("worth", losses, 0.01, NOISE), ("grammar", pairs, 0.005, 0.002)]


@pytest.mark.simulated
@pytest.mark.parametrize(
    ("rule", "rows", "right"),
    [
        ("worth", losses(0.025, 0.025), "supported"),
        ("worth", losses(0.03, 0.03, seeds=8, skewed=True), "supported"),
        ("worth", losses(-0.03, 0.02), "contradicted"),
        ("worth", losses(-0.04, 0.02, skewed=True), "contradicted"),
        ("worth", losses(0.0, 0.0, noise=0.003), "explained by the null"),  # the backbone does as well
        ("worth", losses(0.03, 0.0, noise=0.003), "explained by the null"),  # held weights do as well
        ("worth", losses(0.012, 0.012, seeds=2), "not resolvable"),
        ("worth", losses(0.03, None), "not resolvable"),
        ("grammar", pairs(0.02, 0.02), "supported"),
        ("grammar", pairs(-0.02, 0.01), "contradicted"),
        ("grammar", pairs(0.0, 0.0, noise=0.001), "explained by the null"),
        ("grammar", pairs(0.02, 0.0, noise=0.001, seeds=8), "explained by the null"),
        ("grammar", pairs(0.006, 0.006, seeds=3, noise=0.01), "not resolvable"),
    ],
)
def test_every_verdict_is_the_right_one(rule: str, rows: Truth, right: str) -> None:
    tells(rule, rows, 12, right)


@pytest.mark.nightly
@pytest.mark.parametrize("skewed", [False, True])
def test_at_the_edge_nothing_is_concluded_too_often(skewed: bool) -> None:
    """No gain at all is never support, and a gain that just counts is never nothing."""
    assert share(concluded("worth", losses(0.0, 0.03, skewed=skewed), 12), "supported", "contradicted") <= WRONG
    just = concluded("worth", losses(0.01, 0.03, noise=0.002, skewed=skewed), 12)
    assert share(just, "explained by the null", "contradicted") <= WRONG
    held = concluded("worth", losses(0.03, 0.01, noise=0.002, skewed=skewed), 12)
    assert share(held, "explained by the null", "contradicted") <= WRONG


@pytest.mark.nightly
@pytest.mark.parametrize("seeds", [3, 8])
@pytest.mark.parametrize(("rule", "study", "margin", "noise"), BOTH)
def test_a_gain_of_the_printed_resolution_is_seen(
    rule: str, study: object, margin: float, noise: float, seeds: int
) -> None:
    assert callable(study)
    rows = [
        score
        for run in range(200)
        for score in study(0.02, 0.02, seeds, noise)(run)
        if (score.arm, score.against) == ("elc", "ltg")
    ]
    seen = max(margin, fmean(score.mde for score in rows if score.mde is not None))
    assert share(concluded(rule, study(seen, 10 * seen, seeds, noise), 12, runs=1_200), "supported") >= POWER


def test_time_decides_and_not_steps() -> None:
    steps = [score for score in losses(0.03, 0.03)(0) if score.condition != "seconds"]
    assert claim_of("worth", steps, 12).verdict == "not measured"
    found = claim_of("worth", losses(0.025, 0.025)(0), 12)
    assert "nats" in found.power
    assert "5 seeds" in found.figures
