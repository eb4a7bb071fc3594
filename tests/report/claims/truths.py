"""Simulated truths: what a rule concludes over many runs of a world in which the answer is known.

A truth makes the rows of one run from a seed, by the same measures that make them of a model. Every claim has four
kinds: *true* (what was published holds, by more than the margin), *false* (its opposite), *null* (the null alone is at
work) and *underpowered* (true, on too little text).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

import pytest

from layerwise.report import ReportData
from layerwise.report.claims import CLAIMS, Claim, Published, Verdict
from layerwise.results.rows import Score
from tier import by_tier

RUNS = by_tier(fast=40, nightly=200)
ENOUGH = 60
"""Runs that decide where one verdict ends all of them: with a share below 95 % it would do so in fewer than 5 of 100
tries (.95 ** 60 = .046), so that of any other verdict is below 5 %."""
WRONG = 0.05
POWER = 0.75

SUPPORTED, NULL, CONTRADICTED = "supported", "explained by the null", "contradicted"
ANSWERS = {SUPPORTED, NULL, CONTRADICTED}
"""The verdicts that say something."""
OPEN, UNMEASURED = "not resolvable", "not measured"
NOT_SO = f"{NULL}, {CONTRADICTED}"
EACH = f"{SUPPORTED}; {CONTRADICTED}"
"""Two verdicts that are wrong, each by itself."""
Rule = str | Published
"""A claim by its key, or one that is not of the table."""
Truth = Callable[[int], Iterable[Score]]
"""From the number of a run to its rows."""
Table = Mapping[str, Mapping[str, Iterable[Truth]]]
"""Worlds by the claim and by the verdict that it is about."""


def claim_of(rule: Rule, rows: Iterable[Score], depth: int) -> Claim:
    published = CLAIMS[rule] if isinstance(rule, str) else rule
    return published.decide(ReportData({"depth": depth}, (), tuple(rows)))


def concluded(rule: Rule, truth: Truth, depth: int, runs: int = RUNS) -> Counter[Verdict]:
    return counted(lambda run: claim_of(rule, truth(run), depth).verdict, runs)


def counted(verdict: Callable[[int], Verdict], runs: int) -> Counter[Verdict]:
    counts: Counter[Verdict] = Counter()
    for run in range(runs):
        counts[verdict(run)] += 1
        if run + 1 == ENOUGH and len(counts) == 1:
            break
    return counts


def others(right: str) -> str:
    return "; ".join(sorted(ANSWERS - {right}))


def share(counts: Counter[Verdict], *verdicts: str) -> float:
    return sum(count for verdict, count in counts.items() if verdict in verdicts) / counts.total()


def ends(
    rule: Rule,
    truth: Truth,
    depth: int,
    right: str | None,
    wrong: Iterable[str],
    least: float = POWER,
    runs: int = RUNS,
) -> None:
    """Assert that `right`, if any, ends `least` of the runs or more, and each of `wrong` at most 5 % of them.

    Of several verdicts in one string, all together may be 5 %.
    """
    counts = concluded(rule, truth, depth, runs)
    assert all(share(counts, *verdicts.split(", ")) <= WRONG for verdicts in wrong), counts
    assert right is None or share(counts, right) >= least, counts


def tells(rule: Rule, truth: Truth, depth: int, right: str, least: float = POWER, runs: int = RUNS) -> None:
    ends(rule, truth, depth, right, ANSWERS - {right}, least, runs)


Test = Callable[[Callable[[], None]], None]
"""A test of one parameter, `check`."""


def simulated(
    table: Table,
    *,
    depth: int = 12,
    least: float = POWER,
    runs: int = RUNS,
    wrong: Sequence[str] = (),
    nightly: bool = False,
    together: bool = False,
) -> Test:
    """The test that every world of a table ends in the verdict that it is beside, and rarely in another answer.

    Instead of the other answers those of `wrong` must be rare; the others are so one by one, or `together`.
    """

    def other(right: str) -> Sequence[str]:
        answers = sorted(ANSWERS - {right})
        return wrong or ((", ".join(answers),) if together else answers)

    return _test(table, lambda rule, truth, right: ends(rule, truth, depth, right, other(right), least, runs), nightly)


def found(table: Table, *, depth: int = 12, nightly: bool = False) -> Test:
    def check(rule: str, truth: Truth, right: str) -> None:
        claim = claim_of(rule, truth(0), depth)
        assert claim.verdict == right, claim.line
        assert claim.figures.endswith(".")
        assert "[" in claim.figures
        assert claim.why.endswith(".")
        assert claim.power.startswith("Of 100 such runs 80 would see ")

    return _test(table, check, nightly)


def seldom(table: Table, *, depth: int = 12, nightly: bool = True) -> Test:
    return _test(table, lambda rule, truth, wrong: ends(rule, truth, depth, None, wrong.split("; ")), nightly)


def _test(table: Table, check: Callable[[str, Truth, str], None], nightly: bool) -> Test:
    cases = [
        pytest.param(partial(check, rule, world, verdict), id=f"{rule}-{verdict}-{number}")
        for rule, verdicts in table.items()
        for verdict, worlds in verdicts.items()
        for number, world in enumerate(worlds)
    ]

    @(pytest.mark.nightly if nightly else pytest.mark.simulated)
    @pytest.mark.parametrize("check", cases)
    def test(check: Callable[[], None]) -> None:
        check()

    return test


def printed(truth: Truth, metric: str, runs: int = 40) -> float:
    found = [row.mde for run in range(runs) for row in truth(run) if row.metric == metric and row.mde]
    return sum(found) / len(found)
