"""From rows to a report: figures, one self-contained HTML page, and Markdown. Never sees a model.

evidence     ReportData, the rows of a run; Evidence, the same rows looked up
finding      a question, its answer and how firm it is

A kind of run is a folder. `lookup` finds its rows, `findings` turns them into sentences, `tables` into text, `chapters`
into parts of the page:

sweep        many plans, what each does to the loss, and what it costs to run
diagnosis    every measure by layer, with its nulls
claims       what became of the published claims, on the page and over several runs
comparison   several models side by side: curves, layers, similarity and claims

kinds        the kinds of run that are data (`kind`), with their words; `writers` write any of them
derived      numbers that follow from the rows

All kinds share these:

data         ReportData, the rows of a run
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
from layerwise.report.claims.markdown_page import claims_page
from layerwise.report.comparison.coincidence import CurveCoincidence, coincidences
from layerwise.report.comparison.compared import Compared
from layerwise.report.comparison.overlay import Overlaid, overlaid
from layerwise.report.comparison.page import comparison_page
from layerwise.report.comparison.tables import comparison_lines
from layerwise.report.comparison.verdicts import OverModels, over_models
from layerwise.report.data import ReportData
from layerwise.report.evidence import Evidence
from layerwise.report.finding import Finding
from layerwise.report.kinds import KINDS
from layerwise.report.kinds.sweep_findings import findings
from layerwise.report.page.markdown import markdown
from layerwise.report.page.render import render, write
from layerwise.report.page.wiring import wiring
from layerwise.report.writers import terminal_lines

__all__ = [
    "KINDS",
    "Claim",
    "Compared",
    "CurveCoincidence",
    "Evidence",
    "Finding",
    "Judged",
    "OverModels",
    "Overlaid",
    "ReportData",
    "claim_lines",
    "claims_page",
    "coincidences",
    "comparison_lines",
    "comparison_page",
    "findings",
    "judged",
    "markdown",
    "over_models",
    "overlaid",
    "render",
    "terminal_lines",
    "wiring",
    "write",
]
