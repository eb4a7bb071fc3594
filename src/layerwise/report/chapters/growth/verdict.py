"""The verdict: one sentence on top, and under it what it rests on, arm by arm and term by term."""

from __future__ import annotations

from layerwise.report.chapters.chapter import Chapter, lead, missing, note
from layerwise.report.chapters.pretraining.answers import answers
from layerwise.report.chapters.sweep.headline import BADGES
from layerwise.report.data import Evidence
from layerwise.report.gain import gain_findings
from layerwise.report.gain import verdict as verdict_of
from layerwise.report.growth import GROWTH
from layerwise.report.headline import Finding, Number
from layerwise.report.ledger import arm_rows
from layerwise.report.markup import Safe, element, measured
from layerwise.report.table import simple_table

TITLE, SHORT = "Does training where layers need it help", "Verdict"
NOT_COMPARED = (
    "No arms were compared in this run (growth): one schedule alone says nothing of another. layerwise study growth"
    " trains uniform, the controls and the other schedules beside it."
)


def verdict(evidence: Evidence) -> Chapter:
    """The sentence, the findings, and the arms in a table."""
    found = evidence.growth
    told = verdict_of(found)
    rows = arm_rows(found)
    table = (element("div", simple_table(rows.head, rows.body), class_="spaced"),) if rows.body else ()
    if told is None:
        return Chapter(GROWTH, TITLE, SHORT, (missing(NOT_COMPARED), answers(gain_findings(found)), *table))
    body = (
        lead("Differences in loss on held-out text, seed for seed; below zero the arm is better than uniform."),
        _sentence(told),
        answers(gain_findings(found)),
        *table,
        note(
            "At equal FLOPs both have done as many floating-point operations, at equal tokens read as much text, at"
            " equal seconds trained for as long on this machine. Uniform's loss at a cost is read off its own fully"
            " decayed trainings of several lengths, within each seed. Intervals and p are over seeds."
        ),
    )
    return Chapter(GROWTH, TITLE, SHORT, body)


def _sentence(told: Finding) -> Safe:
    pieces = (measured(piece) if isinstance(piece, Number) else piece for piece in told.answer)
    badge = element("span", BADGES[told.state], class_=f"badge {told.state}")
    return element("p", *pieces, " ", badge, class_="verdict-sentence")
