"""From rows to a report: figures, one self-contained HTML page, and Markdown. Never sees a model.

data        ReportData, the rows of a run; Evidence, the same rows looked up
diagnosis   the rows of a diagnosis, looked up by measure and depth
headline    rules that turn rows of a sweep into sentences
claims      rules that decide what became of the published claims
claims_page what became of them over several runs, as Markdown
robustness  the rows of a robustness run, looked up by arm and condition
survival    rules that decide which arm survives what
standings   the tables of a robustness run, as text
pretraining the rows of pre-trained models, looked up by arm, benchmark and seed
worth       rules that say what pre-training gave, and whether the layer weights are worth it
accounts    the tables of pre-trained models, as text
growth      the rows of a growth run, looked up by arm, phase and seed
gain        rules that say whether a schedule helps, and whether layer roles are why
ledger      the tables of a growth run, as text
figures     Plotly figures as plain data, each also of use alone
wiring      a plan drawn as its matrix; weights, learned layer weights drawn alike
chapters    what the page says, in groups: one for each kind of run
page        render and write
markdown    the same findings and tables as text

html = render(ReportData(manifest, plans, scores))
write(Path("report.html"), html)
"""

from __future__ import annotations

from layerwise.report.claims import Claim, Judged, claim_lines, judged
from layerwise.report.claims_page import claims_page
from layerwise.report.data import Evidence, ReportData
from layerwise.report.gain import gain_lines
from layerwise.report.headline import Finding, findings
from layerwise.report.markdown import markdown
from layerwise.report.page import render, write
from layerwise.report.standings import standing_lines
from layerwise.report.wiring import wiring
from layerwise.report.worth import worth_lines

__all__ = [
    "Claim",
    "Evidence",
    "Finding",
    "Judged",
    "ReportData",
    "claim_lines",
    "claims_page",
    "findings",
    "gain_lines",
    "judged",
    "markdown",
    "render",
    "standing_lines",
    "wiring",
    "worth_lines",
    "write",
]
