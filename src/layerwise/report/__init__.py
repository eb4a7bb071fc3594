"""From rows to a report: figures, one self-contained HTML page, and Markdown. Never sees a model.

data        ReportData, the rows of a run; Evidence, the same rows looked up
headline    rules that turn rows into sentences
figures     plotly figures, each also of use alone
wiring      a plan drawn as its matrix
chapters    what the page says, in order
page        render and write
markdown    the same findings and tables as text

html = render(ReportData(manifest, plans, scores))
write(Path("report.html"), html)
"""

from __future__ import annotations

from layerwise.report.data import Evidence, ReportData
from layerwise.report.headline import Finding, findings
from layerwise.report.markdown import markdown
from layerwise.report.page import render, write
from layerwise.report.wiring import wiring

__all__ = ["Evidence", "Finding", "ReportData", "findings", "markdown", "render", "wiring", "write"]
