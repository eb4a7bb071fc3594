"""Load the kinds of run and the tests of published statements from `layerwise.catalogue` when they are first needed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib import import_module

from layerwise.page.data import ReportData, cached_per_run
from layerwise.page.finding import Finding, Paper
from layerwise.page.kind import Kind


@cache
def load_kinds() -> tuple[Kind, ...]:
    from layerwise.catalogue import PAGES  # imports the verbs

    parts = (path.partition(":") for path in PAGES.values())
    kinds: list[Kind] = [getattr(import_module(module), name) for module, _, name in parts]
    return tuple(sorted(kinds, key=lambda kind: kind.rank))


def present_kinds(data: ReportData) -> tuple[Kind, ...]:
    """Return the kinds that a run belongs to. An empty run counts as a sweep."""
    kinds = load_kinds()
    return tuple(kind for kind in kinds if kind.is_of(data)) or kinds[:1]


Judge = Callable[[ReportData], Finding | None]
"""Answers one question from the rows of a run, or returns None if they do not contain the answer."""


@cache
def load_judges() -> tuple[Judge, ...]:
    from layerwise.catalogue import FINDINGS  # imports the verbs

    parts = (path.partition(":") for path in FINDINGS)
    return tuple(judge for module, _, name in parts for judge in getattr(import_module(module), name))


@cached_per_run
def judge_published(data: ReportData) -> tuple[Finding, ...]:
    """Return the findings of a run that test published statements."""
    return tuple(finding for judge in load_judges() if (finding := judge(data)) is not None)


def group_by_paper(findings: Sequence[Finding]) -> Mapping[Paper, list[Finding]]:
    groups: dict[Paper, list[Finding]] = {}
    for finding in findings:
        if finding.published is not None:
            groups.setdefault(finding.published.paper, []).append(finding)
    return groups
