"""The verdict: one sentence on top, and under it what it rests on, arm by arm and term by term."""

from __future__ import annotations

from layerwise.report.evidence import Evidence
from layerwise.report.growth.findings import supporting_findings
from layerwise.report.growth.findings import verdict as verdict_of
from layerwise.report.growth.lookup import GROWTH
from layerwise.report.growth.tables import arm_rows
from layerwise.report.page.answers import answers, badge, pieces
from layerwise.report.page.chapter import Chapter, Heading, Missing, lead, note, spaced
from layerwise.report.page.markup import element

HEADING = Heading(GROWTH, "Does training where layers need it help", "Verdict")
NOT_COMPARED = (
    "No arms were compared in this run (growth): one schedule alone says nothing of another. layerwise train "
    "growth-study trains uniform, the controls and the other schedules beside it."
)


def verdict(evidence: Evidence) -> Chapter:
    """The sentence, the findings, and the arms in a table."""
    run = evidence.growth
    sentence = verdict_of(run)
    rows = arm_rows(run)
    table = (spaced(rows.html()),) if rows.body else ()
    if sentence is None:
        return HEADING.chapter((Missing(NOT_COMPARED), answers(supporting_findings(run)), *table))
    body = (
        lead("Differences in loss on held-out text, seed for seed; below zero the arm is better than uniform."),
        element("p", *pieces(sentence.answer), " ", badge(sentence), class_="verdict-sentence"),
        answers(supporting_findings(run)),
        *table,
        note(
            "At equal FLOPs both have done as many floating-point operations, at equal tokens read as much text, at"
            " equal seconds trained for as long on this machine. Uniform's loss at a cost is read off its own fully"
            " decayed trainings of several lengths, within each seed. Intervals and p are over seeds."
        ),
    )
    return HEADING.chapter(body)
