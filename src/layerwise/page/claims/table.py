"""The table of the published claims: the key of each and the facts that its rule reads.

A fact is a contrast with its margin, `Read(metric, margin)`, or also a bound, `Read(metric, margin, bound)`, or comes
from a function of the paper's module. `certain` names the facts that need an interval.
"""

from __future__ import annotations

from layerwise.page.claims import elc_bert, growth, layershuffle
from layerwise.page.claims.contrasts import SHARES, Read, nulls, training_ends
from layerwise.page.claims.published import paper, row

ELC_BERT = paper(
    "elc_bert",
    row("worth", elc_bert.worth, certain=("gain",)),
    row("grammar", elc_bert.grammar, certain=("gain",)),
    row("pattern", elc_bert.pattern, certain=("equal", "learned")),
    row("alike", elc_bert.alike),
)
LAYERSHUFFLE = paper(
    "layershuffle",
    row(
        "trained_order",
        {
            "cost": Read("cost", 0.05, bound=0.25, within=SHARES),
            "gains": nulls("gain_above", 0.05, item="{0:%} points above {1}", within=SHARES),
            "skill": layershuffle.IN_ORDER,
            "own": layershuffle.IN_RANDOM_ORDER,
        },
        certain=("cost", "gains"),
        words=training_ends(layershuffle.LAYERSHUFFLE),
    ),
    row("collapse", layershuffle.collapse, certain=("free", "skill")),
    row(
        "pruning",
        {
            "beside": Read("spared_above@baseline", 0.1),
            "spared": nulls("spared_above", 0.1),
            "lost": Read("lost", optional=True),
            "rivals": nulls("lost", item="{1} {0:%} %"),
            "skill": layershuffle.IN_ORDER,
            "own": layershuffle.IN_RANDOM_ORDER,
        },
        certain=("lost", "spared"),
        words=training_ends(layershuffle.LAYERSHUFFLE),
    ),
    row("positions", layershuffle.positions, certain=("short",)),
    row("position_informed", layershuffle.position_informed, certain=("skill", "gains")),
    row(
        "merging",
        {
            "loss": Read("loss", 0.05, bound=0.05, within=SHARES),
            "skill": Read("skill", bound=0.05, optional=True),
            "rivals": nulls("loss", 0.05, bound=0.05, item="{1} {0:%}", lead=", of ", within=SHARES),
            "skills": nulls("skill", bound=0.05),
        },
        certain=("loss", "skill"),
        words=training_ends(layershuffle.LAYERSHUFFLE),
    ),
    row("switching_off", layershuffle.switching_off, certain=("relation", "own")),
)
HETEROGENEITY = paper(
    "heterogeneity",
    row("growth_cost", growth.cost, certain=("number",)),
    row("growth_loss", growth.loss, certain=("number",)),
    row("growth_time", growth.time, certain=("number",)),
)

PAPERS = (ELC_BERT, LAYERSHUFFLE, HETEROGENEITY)
"""The founding papers, in the order in which they were published."""
CLAIMS = {claim.key: claim for paper_ in PAPERS for claim in paper_.claims}
