"""Few runs of a truth are enough to find a rule that is wrong more often than it may be."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from layerwise.report import Evidence
from layerwise.report.claims import Claim, Verdict
from layerwise.report.claims.heterogeneity.scaling import SCALING
from layerwise.results.rows import Score
from report.claims.truths import ENOUGH, claim_of, concluded, ends_right

EVERY = 8


def numbered(run: int) -> list[Score]:
    """A row whose value is the number of the run."""
    return [Score("planted", "all", "all", "run", float(run))]


@dataclass(frozen=True)
class Planted:
    """A rule that gives `right`, and `wrong` in every eighth run: in 12.5 % of them, where 5 % may be wrong."""

    right: Verdict
    wrong: Verdict

    def __call__(self, evidence: Evidence) -> Claim:
        (row,) = evidence.scores("planted")
        verdict = self.wrong if row.value % EVERY == 0 else self.right
        return Claim(SCALING, verdict, "figures", "why")


def test_a_rule_that_is_wrong_one_time_in_eight_fails() -> None:
    with pytest.raises(AssertionError):
        ends_right(Planted("supported", "contradicted"), numbered, 6, ("contradicted",), "supported")


def test_a_rule_that_tells_too_rarely_fails() -> None:
    with pytest.raises(AssertionError):
        ends_right(Planted("not resolvable", "supported"), numbered, 6, ("contradicted",), "supported")


def test_runs_that_end_alike_are_enough_after_sixty_and_a_dissent_asks_for_all() -> None:
    def rule(first: Verdict) -> Planted:
        return Planted("supported", first)

    assert concluded(rule("supported"), numbered, 6, 200) == {"supported": ENOUGH}
    assert concluded(rule("contradicted"), numbered, 6, 200) == {"supported": 175, "contradicted": 25}
    assert concluded(rule("supported"), numbered, 6, ENOUGH - 1).total() == ENOUGH - 1


def test_a_rule_that_is_right_passes() -> None:
    ends_right(Planted("supported", "supported"), numbered, 6, ("contradicted",), "supported")
    assert claim_of(Planted("supported", "contradicted"), numbered(0), 6).verdict == "contradicted"
