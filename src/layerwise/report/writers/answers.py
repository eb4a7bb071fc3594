"""Findings as the page shows them: a question, a badge that says how firm the answer is, and the answer."""

from __future__ import annotations

import re
from collections.abc import Iterable

from layerwise.report.finding import Finding, Number
from layerwise.report.text.markup import Safe, element, measured

INTERVAL = re.compile(r"([+−×]?\d[\d.,]*(?: [a-z%][a-z %]*?)? \[[^\]]*\])")
"""A number, its unit, and its interval behind it."""
BADGES = {"resolved": "resolved", "unresolved": "not resolvable", "described": "no interval"}


def answers(findings: Iterable[Finding]) -> Safe:
    """A list of findings; nothing where there are none."""
    shown = [answer(finding) for finding in findings]
    return element("ol", *shown, class_="findings answers") if shown else Safe("")


def answer(finding: Finding) -> Safe:
    """One finding: its question with a badge, and the answer under it."""
    return element("li", element("h3", finding.question, " ", badge(finding)), element("p", *pieces(finding.answer)))


def badge(finding: Finding) -> Safe:
    """How firm the answer is."""
    return element("span", BADGES[finding.state], class_=f"badge {finding.state}")


def pieces(answer: str | Iterable[str]) -> tuple[str, ...]:
    """The pieces of an answer, its numbers set apart."""
    if isinstance(answer, str):
        return tuple(measured(piece) if at % 2 else piece for at, piece in enumerate(INTERVAL.split(answer)))
    return tuple(measured(piece) if isinstance(piece, Number) else piece for piece in answer)
