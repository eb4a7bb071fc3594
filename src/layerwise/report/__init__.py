"""Turn the rows of a run into a report: figures, a self-contained HTML page, Markdown, and terminal output.

Example:
    html = render(ReportData(manifest, plans, scores))
    write(Path("report.html"), html)
"""

from __future__ import annotations

from layerwise.report.claims import Claim, Judged, claim_lines, judged
from layerwise.report.data import ReportData
from layerwise.report.finding import Finding
from layerwise.report.kinds import KINDS
from layerwise.report.kinds.sweep_findings import findings
from layerwise.report.page.render import render, write
from layerwise.report.side_by_side import side_by_side
from layerwise.report.writers import terminal_lines
from layerwise.report.writers.claims_page import claims_page
from layerwise.report.writers.plans import wiring
from layerwise.report.writers.text import markdown

__all__ = [
    "KINDS",
    "Claim",
    "Finding",
    "Judged",
    "ReportData",
    "claim_lines",
    "claims_page",
    "findings",
    "judged",
    "markdown",
    "render",
    "side_by_side",
    "terminal_lines",
    "wiring",
    "write",
]
