"""What the arms cost: parameters, tokens, seconds, memory and the time of a forward pass, against the backbone."""

from __future__ import annotations

from layerwise.report.accounts import cost_rows
from layerwise.report.chapters.chapter import Chapter, lead, missing, note
from layerwise.report.data import Evidence
from layerwise.report.table import simple_table

ANCHOR, TITLE, SHORT = "costs", "What it cost", "Cost"


def costs(evidence: Evidence) -> Chapter:
    """One table, a row an arm."""
    rows = cost_rows(evidence.pretraining)
    if not rows.body or len(rows.head) < 2:
        text = "Time, memory and size of the trainings were not noted (training)."
        return Chapter(ANCHOR, TITLE, SHORT, (missing(text),))
    against = evidence.pretraining.reference
    body = (
        lead("What a gain must be weighed against: at equal tokens a slower arm has had more machine."),
        simple_table(rows.head, rows.body),
        note(
            "Means over seeds."
            + (f" In brackets, as a multiple of {against}." if against else "")
            + " Times are of the machine in the manifest, and of nothing else."
        ),
    )
    return Chapter(ANCHOR, TITLE, SHORT, body)
