"""The table of the published claims: the key of each and the facts that its rule reads.

A fact is a contrast with its margin, `Read(metric, margin)`, or also a bound, `Read(metric, margin, bound)`, or comes
from a function of the paper's module. `certain` names the facts that need an interval.
"""

from __future__ import annotations

from layerwise.page.claims import growth
from layerwise.page.claims.published import paper, row

HETEROGENEITY = paper(
    "heterogeneity",
    row("growth_cost", growth.cost, certain=("number",)),
    row("growth_loss", growth.loss, certain=("number",)),
    row("growth_time", growth.time, certain=("number",)),
)

PAPERS = (HETEROGENEITY,)
"""The founding papers, in the order in which they were published."""
CLAIMS = {claim.key: claim for paper_ in PAPERS for claim in paper_.claims}
