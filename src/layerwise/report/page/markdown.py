"""The report as Markdown: the claims, findings and main tables of every kind of run, for terminals, papers and logs.

Only text that is safe in a table cell or a sentence is written: what users named is escaped, so that a task called
`a|b` stays one cell.
"""

from __future__ import annotations

from layerwise.report.claims import judged
from layerwise.report.data import ReportData
from layerwise.report.evidence import Evidence
from layerwise.report.page.groups import present_groups
from layerwise.report.page.plain_markdown import escaped
from layerwise.report.page.wording import counted
from layerwise.results.identity import model_title


def markdown(data: ReportData) -> str:
    """The claims, and then what each kind of run that this one is has to say, in the order of the page."""
    evidence = Evidence.of(data)
    writers = dict.fromkeys(write for group in present_groups(evidence) for write in group.markdown)
    sections = (_title(evidence), _claims(evidence), *(text for write in writers for text in write(evidence)))
    return "\n\n".join(section for section in sections if section) + "\n"


def _title(evidence: Evidence) -> str:
    manifest = evidence.data.manifest
    model = escaped(model_title(str(manifest.get("model") or "unnamed model"), str(manifest.get("structure") or "")))
    corpus = escaped(str(evidence.data.manifest.get("corpus") or "an unnamed corpus"))
    plans = f", {counted(len(evidence.records), 'plan')}" if evidence.records else ""
    size = f"{counted(evidence.depth, 'layer')}{plans}, measured" if evidence.depth else "Measured"
    return f"# {model}\n\n{size} on {corpus}."


def _claims(evidence: Evidence) -> str:
    claims = [claim for each in judged(evidence) for claim in each.claims]
    lines = [f"- **{escaped(claim.name)}** ({claim.verdict}) {escaped(claim.reasons)}" for claim in claims]
    return "\n".join(["## Claims", "", *lines]) if lines else ""
