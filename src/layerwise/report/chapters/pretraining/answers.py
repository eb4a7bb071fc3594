"""Findings as the page shows them: a question, a badge that says how firm the answer is, and the answer."""

from __future__ import annotations

from collections.abc import Iterable

from layerwise.report.chapters.sweep.headline import BADGES
from layerwise.report.headline import Finding, Number
from layerwise.report.markup import Safe, element, measured


def answers(findings: Iterable[Finding]) -> Safe:
    """A list of findings; nothing where there are none."""
    shown = [_answer(finding) for finding in findings]
    return element("ol", *shown, class_="findings answers") if shown else Safe("")


def _answer(finding: Finding) -> Safe:
    pieces = (measured(piece) if isinstance(piece, Number) else piece for piece in finding.answer)
    badge = element("span", BADGES[finding.state], class_=f"badge {finding.state}")
    return element("li", element("h3", finding.question, " ", badge), element("p", *pieces))
