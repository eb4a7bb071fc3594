"""What a chapter says when its rows are missing: what was not measured, and the command that measures it."""

from __future__ import annotations

from layerwise.report.chapters.chapter import Chapter, missing
from layerwise.report.data import Evidence
from layerwise.report.markup import element, join

COMMAND = "layerwise robustness RUN"


def absent(evidence: Evidence, anchor: str, title: str, short: str, what: str) -> Chapter:
    """The chapter with its one line; a run that was only trained is told how to go on."""
    how = (" Write ", element("code", COMMAND), " to measure it.") if evidence.robustness.only_trained else ()
    return Chapter(anchor, title, short, (missing(join([what, *how])),))
