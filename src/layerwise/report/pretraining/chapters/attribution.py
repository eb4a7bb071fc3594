"""Feature attribution: the words that a fine-tuned model's decision on mixed signals comes from."""

from __future__ import annotations

from layerwise.report.evidence import Evidence
from layerwise.report.page.answers import answers
from layerwise.report.page.chapter import Chapter, Heading, lead, note
from layerwise.report.page.number_format import fixed
from layerwise.report.pretraining.attribution import attribution_findings, attribution_rows, largest_gap

HEADING = Heading("attribution", "Words that decide", "Attribution")


def attribution(evidence: Evidence) -> Chapter:
    """The finding, and a table of the shares of attribution with their nulls."""
    run = evidence.pretraining
    rows = attribution_rows(run)
    if not rows.body:
        return HEADING.missing("No decision was attributed to words (attribution): layerwise study layer-weights.")
    gap = largest_gap(run)
    body = (
        lead(
            "Taught sentences whose linguistic and surface features agree, and asked where they disagree: does the"
            " decision come from the words that carry the one, or the other?"
        ),
        answers(tuple(attribution_findings(run))),
        rows.html(),
        note(
            "Percent of the absolute attribution of all tokens but special ones, by integrated gradients from the mask"
            " token (Sundararajan et al. 2017), of the difference of the two logits. The share of the tokens is what a"
            " model has whose decision comes from all of them alike; with shuffled labels there was nothing to learn."
            " Preference is linguistic minus surface, each beyond its share of the tokens, in points. Intervals are"
            " over sentences, and over seeds where there are several."
            + ("" if gap is None else f" At most {fixed(100 * gap, 2)} % is missing from completeness.")
        ),
    )
    return HEADING.chapter(body, ())
