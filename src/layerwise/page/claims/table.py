"""The table of the published claims: the key of each and the facts that its rule reads.

A fact is a contrast with its margin, `Read(metric, margin)`, or also a bound, `Read(metric, margin, bound)`, or comes
from a function of the paper's module. `certain` names the facts that need an interval.
"""

from __future__ import annotations

from layerwise.page.claims import elc_bert, growth
from layerwise.page.claims.published import paper, row

ELC_BERT = paper(
    "elc_bert",
    row("worth", elc_bert.worth, certain=("gain",)),
    row("grammar", elc_bert.grammar, certain=("gain",)),
    row("pattern", elc_bert.pattern, certain=("equal", "learned")),
    row("alike", elc_bert.alike),
)
HETEROGENEITY = paper(
    "heterogeneity",
    row("growth_cost", growth.cost, certain=("number",)),
    row("growth_loss", growth.loss, certain=("number",)),
    row("growth_time", growth.time, certain=("number",)),
)

PAPERS = (ELC_BERT, HETEROGENEITY)
"""The founding papers, in the order in which they were published."""
CLAIMS = {claim.key: claim for paper_ in PAPERS for claim in paper_.claims}
