"""What became of the published claims on every model that was measured, as one Markdown page.

The page is generated from runs of any kind: it holds every paper with its claims, each with its statement, its citation
and its rule, and a table of the runs that decided it. A run is one of a model, a text and a command, which the page
lists first.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from layerwise.report.claims import PAPERS, Claim, Paper
from layerwise.report.data import ReportData
from layerwise.report.evidence import Evidence
from layerwise.report.page.plain_markdown import escaped
from layerwise.report.page.table import Table

INTRODUCTION = (
    "Each claim was decided by a rule that was stated beforehand, from contrasts with intervals, on the models below."
    " “Supported”, “contradicted” and “explained by the null” are each shown by an interval; “not resolvable” is all"
    " else, and says what would decide. A verdict is about the models that were measured, not about all models."
)
ABSENT = "–"
HEADINGS = ("run", "model", "layers", "text", "tokens", "command")
WHERE_ROWS_LIE = "--run"


@dataclass(frozen=True, slots=True)
class _Run:
    """A run as the page names it, and what became of every claim there: a tuple for each of `PAPERS`."""

    name: str
    manifest: Mapping[str, object]
    claims: tuple[tuple[Claim, ...], ...]

    @property
    def model(self) -> str:
        """The model that was measured."""
        return str(self.manifest.get("model") or "unnamed")


def claims_page(runs: Sequence[ReportData]) -> str:
    """The page of the claims as Markdown, from the rows of `runs`; they are numbered in the order given."""
    described = [_decided(f"{number}", data) for number, data in enumerate(runs, start=1)]
    by_paper = [
        (paper, list(zip(*(run.claims[index] for run in described), strict=True))) for index, paper in enumerate(PAPERS)
    ]
    sections = (
        "# What became of the published claims",
        INTRODUCTION,
        "## Runs",
        Table(HEADINGS, tuple(_described(run) for run in described)).markdown(),
        "## Verdicts",
        *(part for paper, claims in by_paper for part in _summary(paper, claims, described)),
        *(part for paper, claims in by_paper for part in _paper(paper, claims, described)),
    )
    return "\n\n".join(sections) + "\n"


def _decided(name: str, data: ReportData) -> _Run:
    evidence = Evidence.of(data)
    claims = tuple(tuple(rule(evidence) for rule in paper.rules) for paper in PAPERS)
    return _Run(name, {**data.manifest, "depth": evidence.depth}, claims)


def _described(run: _Run) -> tuple[str, ...]:
    manifest = run.manifest
    tokens = manifest.get("tokens")
    return (
        run.name,
        run.model,
        str(manifest["depth"] or ABSENT),
        str(manifest.get("corpus") or "unnamed"),
        f"{tokens:,}" if isinstance(tokens, int) else ABSENT,
        command_line(manifest.get("command")),
    )


def command_line(words: object) -> str:
    """The command as it is typed; where its rows lie is left out.

    >>> command_line(["/usr/bin/layerwise", "sweep", "demo", "--run", "runs/demo"])
    'layerwise sweep demo'
    """
    given = [str(word) for word in words][1:] if isinstance(words, list | tuple) else []
    if not given:
        return ABSENT
    kept = [
        word
        for index, word in enumerate(given)
        if word != WHERE_ROWS_LIE and (index == 0 or given[index - 1] != WHERE_ROWS_LIE)
    ]
    return shlex.join(["layerwise", *kept])


def _summary(paper: Paper, claims: Sequence[Sequence[Claim]], runs: Sequence[_Run]) -> tuple[str, str]:
    """The verdicts of a paper: a line a claim, a column a run."""
    lines = tuple(
        (over_runs[0].name, *(ABSENT if each.verdict == "not measured" else each.verdict for each in over_runs))
        for over_runs in claims
    )
    head = ("claim", *(f"{run.name}: {run.model}" for run in runs))
    return f"**{escaped(paper.title)}**", Table(head, lines).markdown()


def _paper(paper: Paper, claims: Sequence[Sequence[Claim]], runs: Sequence[_Run]) -> tuple[str, ...]:
    parts = (part for over_runs in claims for part in _claim(over_runs, runs))
    return f"## {escaped(paper.title)}", f"{escaped(paper.citation)}.", *parts


def _claim(over_runs: Sequence[Claim], runs: Sequence[_Run]) -> tuple[str, ...]:
    """One claim as published, its rule, and a line for each run that measured it."""
    published = over_runs[0].published
    body = tuple(
        (run.name, claim.verdict, " ".join(part for part in (claim.figures, claim.why) if part))
        for run, claim in zip(runs, over_runs, strict=True)
        if claim.verdict != "not measured"
    )
    return (
        f"### {escaped(published.name)}",
        f"{escaped(published.statement)} ({escaped(published.citation)})",
        *((f"Rule: {escaped(published.rule)}",) if published.rule else ()),
        Table(("run", "verdict", "figures"), body).markdown() if body else f"Not measured. {escaped(over_runs[0].why)}",
    )
