"""What a chapter says when its rows are missing: what was not measured, and the command that measures it."""

from __future__ import annotations

from layerwise.report.evidence import Evidence
from layerwise.report.page.chapter import Chapter, Heading
from layerwise.report.page.markup import element, join

COMMAND = "layerwise robustness RUN"


def absent(evidence: Evidence, heading: Heading, what: str) -> Chapter:
    """The chapter with its one line; for a run that was only trained it names the command that goes on."""
    how = (" Write ", element("code", COMMAND), " to measure it.") if evidence.robustness.only_trained else ()
    return heading.missing(join([what, *how]))
