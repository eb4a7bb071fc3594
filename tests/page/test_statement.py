"""Statements on the terminal: the question, the answer and its verdict."""

import pytest

from layerwise.page.finding import Finding, Verdict
from layerwise.page.writers.text import remove_verdicts
from layerwise.results.estimate import Estimate


@pytest.mark.parametrize(
    ("answer", "verdict", "stated"),
    [
        ("No, it is worse.", Verdict.CONTRADICTED, "No, it is worse (contradicted)."),
        ("Yes. It is 0.5 lower.", Verdict.SUPPORTED, "Yes (supported). It is 0.5 lower."),
        ("Better (3 seeds).", Verdict.SUPPORTED, "Better (3 seeds); verdict: supported."),
        ("Inconclusive: too short.", Verdict.INCONCLUSIVE, "Inconclusive: too short."),
        ("It is 0.1 lower, inconclusive.", Verdict.INCONCLUSIVE, "It is 0.1 lower, inconclusive."),
        ("There are no intervals.", None, "There are no intervals."),
    ],
)
def test_a_statement_has_its_verdict_once(answer: str, verdict: Verdict | None, stated: str) -> None:
    statement = Finding("Is B better?", answer, verdict).statement
    assert statement == f"Is B better? {stated}"
    assert remove_verdicts(statement) == f"Is B better? {answer}"


def test_a_full_statement_ends_with_the_number() -> None:
    finding = Finding("Is B better?", "Yes.", Verdict.SUPPORTED, Estimate(0.2, 0.1, 0.3), "nats/token")
    assert finding.full_statement == "Is B better? Yes (supported). Measured: 0.200 [0.100, 0.300] nats/token."
