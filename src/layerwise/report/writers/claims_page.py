"""What became of the published claims on every model that was measured, as one Markdown page.

The page is generated from runs of any kind: it holds every paper with its claims, each with its statement, its citation
and its rule, and a table of the runs that decided it. A run is one of a model, a text and a command, which the page
lists first.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from layerwise.report.claims import CLAIMS, PAPERS, Claim, Paper, Published
from layerwise.report.claims.claim import NOT_MEASURED
from layerwise.report.data import ReportData
from layerwise.report.text.plain_markdown import escaped
from layerwise.report.text.table import Table

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
    """A run as the page names it, and what became of every claim there, by its key."""

    name: str
    manifest: Mapping[str, object]
    claims: Mapping[str, Claim]

    @property
    def model(self) -> str:
        """The model that was measured."""
        return str(self.manifest.get("model") or "unnamed")

    @property
    def described(self) -> tuple[str, ...]:
        """The run as a row of the table of runs."""
        tokens = self.manifest.get("tokens")
        return (
            self.name,
            self.model,
            str(self.manifest["depth"] or ABSENT),
            str(self.manifest.get("corpus") or "unnamed"),
            f"{tokens:,}" if isinstance(tokens, int) else ABSENT,
            command_line(self.manifest.get("command")),
        )


def claims_page(runs: Sequence[ReportData]) -> str:
    """The page of the claims as Markdown, from the rows of `runs`; they are numbered in the order given."""
    decided = [_decided(f"{number}", data) for number, data in enumerate(runs, start=1)]
    sections = (
        "# What became of the published claims",
        INTRODUCTION,
        "## Runs",
        Table(HEADINGS, tuple(run.described for run in decided)).markdown(),
        "## Verdicts",
        *(part for paper in PAPERS for part in _summary(paper, decided)),
        *(part for paper in PAPERS for part in _paper(paper, decided)),
    )
    return "\n\n".join(sections) + "\n"


def _decided(name: str, data: ReportData) -> _Run:
    claims = {key: claim.decide(data) for key, claim in CLAIMS.items()}
    return _Run(name, {**data.manifest, "depth": data.depth}, claims)


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


def _summary(paper: Paper, runs: Sequence[_Run]) -> tuple[str, str]:
    """The verdicts of a paper: a line a claim, a column a run."""
    lines = tuple(
        (
            claim.name,
            *(verdict.replace(NOT_MEASURED, ABSENT) for verdict in (run.claims[claim.key].verdict for run in runs)),
        )
        for claim in paper.claims
    )
    head = ("claim", *(f"{run.name}: {run.model}" for run in runs))
    return f"**{escaped(paper.title)}**", Table(head, lines).markdown()


def _paper(paper: Paper, runs: Sequence[_Run]) -> tuple[str, ...]:
    parts = (part for claim in paper.claims for part in _claim(claim, runs))
    return f"## {escaped(paper.title)}", f"{escaped(paper.citation)}.", *parts


def _claim(published: Published, runs: Sequence[_Run]) -> tuple[str, ...]:
    """One claim as published, its rule, the paper's own number, and a line for each run that measured it."""
    prose, decided = published.prose, {run.name: run.claims[published.key] for run in runs}
    body = tuple(
        (name, claim.verdict, " ".join(part for part in (claim.figures, claim.why) if part))
        for name, claim in decided.items()
        if claim.verdict != NOT_MEASURED
    )
    return (
        f"### {escaped(prose.name)}",
        f"{escaped(prose.statement)} ({escaped(prose.citation)})",
        f"Rule: {escaped(prose.rule)}",
        *((f"The paper: {escaped(published.number)}.",) if published.number else ()),
        Table(("run", "verdict", "figures"), body).markdown() if body else f"Not measured. {escaped(prose.needs)}",
    )
