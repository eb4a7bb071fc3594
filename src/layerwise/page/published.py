"""The findings on published statements: every function that `layerwise.catalogue.FINDINGS` names."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib import import_module

from layerwise.page.data import ReportData, computed_once
from layerwise.page.finding import Finding, Paper

Judge = Callable[[ReportData], Finding | None]
"""Answer one question from the rows of a run; None if they were not measured."""


@cache
def load_judges() -> tuple[Judge, ...]:
    from layerwise.catalogue import FINDINGS  # which imports the verbs

    parts = (path.partition(":") for path in FINDINGS)
    return tuple(judge for module, _, name in parts for judge in getattr(import_module(module), name))


@computed_once
def judge_published(data: ReportData) -> tuple[Finding, ...]:
    """Return the findings on published statements that the rows of a run allow."""
    return tuple(finding for judge in load_judges() if (finding := judge(data)) is not None)


def group_by_paper(findings: Sequence[Finding]) -> Mapping[Paper, list[Finding]]:
    groups: dict[Paper, list[Finding]] = {}
    for finding in findings:
        if finding.published is not None:
            groups.setdefault(finding.published.paper, []).append(finding)
    return groups
