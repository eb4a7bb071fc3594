"""The table of all plans, sortable and filterable."""

from __future__ import annotations

from layerwise.report.evidence import Evidence
from layerwise.report.page.chapter import Chapter, Heading, lead
from layerwise.report.page.markup import Safe, element
from layerwise.report.page.wording import counted, label
from layerwise.report.sweep.plan_table import plan_table

HEADING = Heading("plans", "All plans", "Table")


def plans(evidence: Evidence) -> Chapter:
    """The table under its filters."""
    if not evidence.records:
        return HEADING.missing("The run has no plans.")
    body = (
        lead(
            "Effects are differences to the untouched model in nats per token, with their intervals. Positive is worse."
        ),
        _filters(evidence),
        plan_table(evidence),
    )
    return HEADING.chapter(body)


def _filters(evidence: Evidence) -> Safe:
    strategies = [element("option", label(name), value=name) for name in evidence.strategies]
    return element(
        "div",
        element("label", "Find ", element("input", type="search", id="find", placeholder="plan or strategy")),
        element("label", "Strategy ", element("select", element("option", "all", value=""), *strategies, id="only")),
        element("label", element("input", type="checkbox", id="resolved"), " only effects distinguished from zero"),
        element("output", counted(len(evidence.records), "plan"), id="count", aria_live="polite"),
        class_="filters",
    )
