"""Simulated truths: what a rule concludes over many runs of a world in which the answer is known.

A truth makes the rows of one run from a seed, by the same measures that make them of a model. Every claim has four
kinds: *true* (what was published holds, by more than the margin), *false* (its opposite), *null* (the null alone is at
work) and *underpowered* (true, on too little text).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable

import pytest

from layerwise.report import Evidence, ReportData
from layerwise.report.claims import CLAIMS, Claim, Published, Verdict
from layerwise.results.rows import Score
from tier import by_tier

RUNS = by_tier(fast=40, full=200)
ENOUGH = 60
"""Runs that decide where one verdict ends all of them: with a share below 95 % it would do so in fewer than 5 of 100
tries (.95 ** 60 = .046), so that of any other verdict is below 5 %."""
WRONG = 0.05
POWER = 0.75

NEAR_THE_BAR = pytest.mark.nightly
"""The mark of a truth whose shares of verdicts are so near their bars that few runs would not tell."""

ANSWERS = {"supported", "contradicted", "explained by the null"}
"""The verdicts that say something."""
NOT_SO = "explained by the null, contradicted"
Rule = str | Published
"""A claim by its key, or one that is not of the table."""
Truth = Callable[[int], Iterable[Score]]
"""From the number of a run to its rows."""


def claim_of(rule: Rule, rows: Iterable[Score], depth: int) -> Claim:
    """What a rule says of the rows of one run."""
    published = CLAIMS[rule] if isinstance(rule, str) else rule
    return published.decide(Evidence.of(ReportData({"depth": depth}, (), tuple(rows))))


def concluded(rule: Rule, truth: Truth, depth: int, runs: int = RUNS) -> Counter[Verdict]:
    """How often each verdict is given over `runs` runs of a truth; over `ENOUGH` where these end alike."""
    counts: Counter[Verdict] = Counter()
    for run in range(runs):
        counts[claim_of(rule, truth(run), depth).verdict] += 1
        if run + 1 == ENOUGH and len(counts) == 1:
            break
    return counts


def share(counts: Counter[Verdict], *verdicts: str) -> float:
    """The share of runs that ended in one of `verdicts`."""
    return sum(count for verdict, count in counts.items() if verdict in verdicts) / counts.total()


def ends_right(rule: Rule, truth: Truth, depth: int, wrong: Collection[str], right: str | None) -> None:
    """Assert that the verdicts of `wrong` are at most 5 % of the runs together, and `right`, if any, 75 % or more."""
    counts = concluded(rule, truth, depth)
    assert share(counts, *wrong) <= WRONG, counts
    assert right is None or share(counts, right) >= POWER, counts


def tells(rule: Rule, truth: Truth, depth: int, right: str, least: float = POWER, runs: int = RUNS) -> None:
    """Assert that `right` ends `least` of the runs or more, and no other answer more than 5 % of them."""
    counts = concluded(rule, truth, depth, runs)
    assert all(share(counts, other) <= WRONG for other in ANSWERS - {right}), counts
    assert share(counts, right) >= least, counts


def seldom(rule: Rule, truth: Truth, depth: int, *wrong: str) -> None:
    """Assert that each of `wrong` ends at most 5 % of the runs; of several that are one string, all together."""
    counts = concluded(rule, truth, depth)
    assert all(share(counts, *verdicts.split(", ")) <= WRONG for verdicts in wrong), counts


def printed(truth: Truth, metric: str, runs: int = 40) -> float:
    """The detectable size that the rows of a metric say, at the mean over runs."""
    found = [row.mde for run in range(runs) for row in truth(run) if row.metric == metric and row.mde]
    return sum(found) / len(found)
