"""From rows to a report: figures, one self-contained HTML page, and Markdown. Never sees a model.

data         ReportData, the rows of a run
text         how numbers, words, tables and escaped text are written
finding      a question, its answer and how firm it is
figures      Plotly figures as plain data, each also of use alone
marks        the pictures: lines, dots, heat, bars, scatter, levels
kind         what a kind of run is: sections, marks, tables, findings; `show` and `prose` are its numbers and words
trained      models that a run trained: arms, seeds, suites, rows by arm
derived      numbers that follow from the rows
claims       what became of the published claims, in one run and over several
side_by_side several runs as one: curves, layers, similarity and claims of their models
kinds        the kinds of run, as data, with their words
writers      a kind as a page, as Markdown and on the terminal
page         the page itself (`render`, `write`) and the provenance

Each imports what stands above it only.

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
