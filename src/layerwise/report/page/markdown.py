"""The report as Markdown: the claims, findings and main tables of every kind of run, for terminals, papers and logs.

Only text that is safe in a table cell or a sentence is written: what users named is escaped, so that a task called
`a|b` stays one cell.
"""

from __future__ import annotations

from layerwise.report.claims import judged
from layerwise.report.data import ReportData
from layerwise.report.page.groups import present_kinds
from layerwise.report.text.plain_markdown import escaped
from layerwise.report.text.wording import counted
from layerwise.report.writers.text import markdown_parts


def markdown(data: ReportData) -> str:
    """The claims, and then what each kind of run that this one is has to say, in the order of the page."""
    kinds = present_kinds(data)
    written = [text for kind in kinds for text in markdown_parts(kind, data)]
    sections = (_title(data), _claims(data), *(written or [kinds[0].sections[0].of(kinds[0]).missing]))
    return "\n\n".join(section for section in sections if section) + "\n"


def _title(data: ReportData) -> str:
    model = escaped(data.title or "unnamed model")
    corpus = escaped(str(data.manifest.get("corpus") or "an unnamed corpus"))
    plans = f", {counted(len(data.records), 'plan')}" if data.records else ""
    size = f"{counted(data.depth, 'layer')}{plans}, measured" if data.depth else "Measured"
    return f"# {model}\n\n{size} on {corpus}."


def _claims(data: ReportData) -> str:
    claims = [claim for each in judged(data) for claim in each.claims]
    lines = [f"- **{escaped(claim.name)}** ({claim.verdict}) {escaped(claim.reasons)}" for claim in claims]
    return "\n".join(["## Claims", "", *lines]) if lines else ""
