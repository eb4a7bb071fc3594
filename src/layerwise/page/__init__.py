"""Reports of a run: a self-contained HTML page, Markdown and terminal output.

Example:
    html = render(ReportData(manifest, plans, scores))
    write(Path("report.html"), html)
"""

from __future__ import annotations

from layerwise.page.data import ReportData
from layerwise.page.finding import Finding, Verdict
from layerwise.page.kinds import judge_published
from layerwise.page.render import render, write
from layerwise.page.writers import terminal_lines
from layerwise.page.writers.findings_page import findings_page
from layerwise.page.writers.plans import draw_wiring
from layerwise.page.writers.text import markdown

__all__ = [
    "Finding",
    "ReportData",
    "Verdict",
    "draw_wiring",
    "findings_page",
    "judge_published",
    "markdown",
    "render",
    "terminal_lines",
    "write",
]
