"""Whether parallel layers are the best way: the rule on planted truths of each kind, with its error and its power."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import numpy as np
import pytest
from scipy import stats

from layerwise.measure.cost.latency_verdict import (
    ABOVE_CLOSEST,
    ABOVE_RIVAL,
    BEATEN,
    BEST,
    MARGIN,
    UNRESOLVED,
    LatencyPoint,
    possibly_and_surely,
    verdict_rows,
)
from layerwise.measure.cost.pass_time import RoundTimes, Setting
from layerwise.results.rows import Loss, Score
from tier import by_tier

DECODE = Setting("decode", 1, 8)
SPREAD = 0.02
"""The standard deviation of a plan's own effect on a document, in nats per token."""

Truth = Mapping[str, tuple[float, float]]
"""Milliseconds and nats per token above the model as trained, by plan."""

OTHERS: Truth = {"0-7": (8.0, 0.0), "1-7": (7.1, 0.1), "2-7": (6.2, 0.2), "4-7": (4.4, 0.4), "0*2 1-7": (8.9, 0.05)}
ARMS = {"0-7": "identity", "0*2 1-7": "looped"}


def study(
    parallel: Truth, seed: int, *, documents: int = 60, rounds: int = 20, pace: float = 0.01, extra: Truth | None = None
) -> list[Score]:
    """The rows of one study of planted truths: documents and rounds are drawn, the plans are chosen on others."""
    draw = np.random.default_rng(seed)
    truth = {**OTHERS, **(extra or {}), **parallel}
    hard = draw.normal(3.0, 0.5, documents)
    losses = []
    for plan, (_, nats) in truth.items():
        own = np.zeros(documents) if plan == "0-7" else draw.normal(nats, SPREAD, documents)
        losses += [
            Loss(plan, "report/text", f"{at:03}", 0, float(30 * (hard[at] + own[at])), 30, 0) for at in range(documents)
        ]
    chosen_on = {plan: 3.0 + nats + draw.normal(0, SPREAD / documents**0.5) for plan, (_, nats) in truth.items()}
    times: list[RoundTimes] = []
    for _ in range(rounds):
        machine = draw.lognormal(0, 0.2)
        times.append({(plan, DECODE): ms * machine * draw.lognormal(0, pace) for plan, (ms, _) in truth.items()})
    points = [LatencyPoint(plan, "parallel" if plan in parallel else ARMS.get(plan, "skip"), plan) for plan in truth]
    return verdict_rows(points, losses, chosen_on, times, [DECODE], seed=seed)


def verdicts(rows: list[Score]) -> dict[str, str]:
    return {str(row.plan): row.metric for row in rows if row.metric in (BEATEN, BEST, UNRESOLVED)}


def test_what_was_planted_is_what_is_said() -> None:
    planted: Truth = {
        "(0|1) 2-7": (7.0, 0.03),  # quicker than one layer less, and better
        "(0|1) (2|3) 4-7": (7.3, 0.25),  # one layer less is quicker, and better
        "(0|1|2) 3-7": (6.3, 0.2),  # as quick and as good as two layers less
    }
    rows = study(planted, 0)
    assert verdicts(rows) == dict(zip(planted, (BEST, BEATEN, UNRESOLVED), strict=True))
    above = {(row.plan, row.metric): row for row in rows}
    rival = above["(0|1) (2|3) 4-7", ABOVE_RIVAL]
    assert (rival.condition, rival.against) == ("decode, batch 1, context 8", "1-7")
    assert rival.value == pytest.approx(0.15, abs=0.02)
    assert rival.p_adjusted is not None
    assert rival.p_adjusted < 0.05
    closest = above["(0|1) 2-7", ABOVE_CLOSEST]
    assert closest.against == "1-7"  # within the margin of its time
    assert closest.high is not None
    assert closest.high < 0


@pytest.mark.simulated
def test_no_more_than_one_study_in_twenty_says_what_is_not_so() -> None:
    """Plans that are as good and as quick as a rival: nothing may be said of any of them."""
    planted: Truth = {f"(0|{at}) 2-7": OTHERS[rival] for at, rival in enumerate(("1-7", "2-7", "4-7"), start=1)}
    runs = by_tier(fast=8, nightly=100)
    wrong = sum(set(verdicts(study(planted, seed)).values()) != {UNRESOLVED} for seed in range(runs))
    print(f"{wrong} of {runs} studies say what is not so")
    assert wrong <= stats.binom.ppf(0.999, runs, 0.05)


@pytest.mark.simulated
@pytest.mark.parametrize(("planted", "verdict"), [((7.0, 0.03), BEST), ((7.3, 0.2), BEATEN)], ids=["best", "beaten"])
def test_what_is_so_is_found_in_nine_of_ten_studies(planted: tuple[float, float], verdict: str) -> None:
    runs = by_tier(fast=6, nightly=100)
    said = Counter(verdicts(study({"(0|1) 2-7": planted}, seed))["(0|1) 2-7"] for seed in range(runs))
    assert said[verdict] >= 0.9 * runs - 1
    assert set(said) <= {verdict, UNRESOLVED}


def test_a_plan_that_is_good_because_it_takes_the_time_of_the_whole_model_is_not_best() -> None:
    """The model as trained is as quick, up to the noise of the clock, and loses less."""
    assert verdicts(study({"(0|1) 2-7": (8.0, 0.03)}, 1))["(0|1) 2-7"] != BEST


def test_a_noisy_clock_leaves_it_open() -> None:
    said = verdicts(study({"(0|1) 2-7": (7.0, 0.03)}, 2, pace=0.8))
    assert said == {"(0|1) 2-7": UNRESOLVED}


def test_a_short_text_leaves_it_open() -> None:
    assert verdicts(study({"(0|1) 2-7": (7.0, 0.09)}, 3, documents=8)) == {"(0|1) 2-7": UNRESOLVED}


def test_the_quickest_of_all_is_not_called_best() -> None:
    rows = study({"(0|1) 2-7": (1.0, 0.9)}, 4)
    assert [row.metric for row in rows] == [UNRESOLVED]


def test_a_draft_counts_where_it_was_timed_alone() -> None:
    """A rival without a time in a setting is none there."""
    rows = study({"(0|1) 2-7": (7.0, 0.03)}, 5, extra={"draft": (5.0, 0.0)})
    assert verdicts(rows) == {"(0|1) 2-7": BEATEN}


def test_times_are_compared_within_a_margin_and_only_in_enough_rounds() -> None:
    assert possibly_and_surely([1 + MARGIN] * 20, 4) == (True, True)
    assert possibly_and_surely([1.001 + MARGIN] * 20, 4) == (False, False)
    assert possibly_and_surely([0.5] * 8, 20) == (True, False)
    ratios = [0.99] * 10 + [1.05] * 10
    assert possibly_and_surely(ratios, 4) == (True, False)


def test_few_documents_have_no_rows() -> None:
    assert study({"(0|1) 2-7": (7.0, 0.03)}, 6, documents=7) == []
