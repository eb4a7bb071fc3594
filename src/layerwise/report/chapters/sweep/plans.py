"""The table of all plans, sortable and filterable."""

from __future__ import annotations

from layerwise.report.chapters.chapter import Chapter, lead, missing
from layerwise.report.data import Evidence
from layerwise.report.markup import Safe, element
from layerwise.report.table import plan_table
from layerwise.report.wording import counted, label


def plans(evidence: Evidence) -> Chapter:
    """The table under its filters."""
    title, short = "All plans", "Table"
    if not evidence.records:
        return Chapter("plans", title, short, (missing("The run has no plans."),))
    body = (
        lead(
            "Effects are differences to the untouched model in nats per token, with their intervals. Positive is worse."
        ),
        _filters(evidence),
        plan_table(evidence),
    )
    return Chapter("plans", title, short, body)


def _filters(evidence: Evidence) -> Safe:
    strategies = [element("option", label(name), value=name) for name in evidence.strategies]
    return element(
        "div",
        element("label", "Find ", element("input", type="search", id="find", placeholder="plan or strategy")),
        element("label", "Strategy ", element("select", element("option", "all", value=""), *strategies, id="only")),
        element("label", element("input", type="checkbox", id="resolved"), " only effects told apart from zero"),
        element("output", counted(len(evidence.records), "plan"), id="count", aria_live="polite"),
        class_="filters",
    )
