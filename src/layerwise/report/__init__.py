"""From rows to a report: figures, one self-contained HTML page, and Markdown. Never sees a model.

evidence     ReportData, the rows of a run; Evidence, the same rows looked up
finding      a question, its answer and how firm it is

A kind of run is a folder. `lookup` finds its rows, `findings` turns them into sentences, `tables` into text, `chapters`
into parts of the page:

sweep        many plans, what each does to the loss, and what it costs to run
diagnosis    every measure by layer, with its nulls
claims       what became of the published claims, on the page and over several runs

kinds        the kinds of run that are data (`kind`), with their words; `writers` write any of them
derived      numbers that follow from the rows

All kinds share these:

data         ReportData, the rows of a run
side_by_side several runs as one: curves, layers, similarity and claims of their models
trained      models that a run trained: arms, seeds, suites, rows by arm
show         how a number is written
marks        the pictures: lines, dots, heat, bars, scatter

figures      Plotly figures as plain data, each also of use alone
page         the page itself (`render`, `write`), the Markdown, the kinds of run (`groups`), and what these are made of

html = render(ReportData(manifest, plans, scores))
write(Path("report.html"), html)
"""

from __future__ import annotations

from layerwise.report.claims import Claim, Judged, claim_lines, judged
from layerwise.report.data import ReportData
from layerwise.report.evidence import Evidence
from layerwise.report.figures.wiring import wiring
from layerwise.report.finding import Finding
from layerwise.report.kinds import KINDS
from layerwise.report.kinds.sweep_findings import findings
from layerwise.report.page.markdown import markdown
from layerwise.report.page.render import render, write
from layerwise.report.side_by_side import side_by_side
from layerwise.report.writers import terminal_lines
from layerwise.report.writers.claims_page import claims_page

__all__ = [
    "KINDS",
    "Claim",
    "Evidence",
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
