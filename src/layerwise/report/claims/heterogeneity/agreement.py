"""The claim that five independent metrics agree on which layers matter."""

from __future__ import annotations

from layerwise.report.claims.claim import BY_NULL, CONTRADICTED, NOT_ABOVE, SUPPORTED, Claim, Published, Span
from layerwise.report.claims.contrasts import contrasts
from layerwise.report.claims.power import EQUIVALENCE, seen
from layerwise.report.diagnosis.lookup import NULL
from layerwise.report.evidence import Evidence
from layerwise.report.page.number_format import tidy
from layerwise.report.page.wording import counted

MARGIN = 0.3

AGREEMENT = Published(
    "agreement",
    "Five metrics agree",
    "Five independent diagnostic metrics (predictability, ablation, recovery, manipulation, structure) agree on which"
    " layers matter.",
    "arXiv 2603.19348, abstract",
    "Ablation, recovery and manipulation all damage a layer and watch the loss: that they agree is the null. So the"
    " claim is decided by the mean rank correlation over the pairs of metrics that are not both of these; the margin is"
    f" {MARGIN:g}. Supported: it lies above zero, and not within the margin. Explained by the null: it is shown to lie"
    " within the margin or below zero, while the mean over the three lies above. Contradicted: both are shown to lie"
    " within the margin or below zero. Anything else is not resolvable.",
    "It needs the parts ablation, proxies and predictability (or more) over at least 6 layers.",
)


def agreement(evidence: Evidence) -> Claim:
    """Do metrics that share no measurement rank the layers alike?"""
    rows = contrasts(evidence, AGREEMENT.key, "apart", "layers")
    own = _correlation(rows.span("apart")) if rows else None
    if rows is None or own is None:
        return AGREEMENT.unmeasured()
    damage, chance = _correlation(rows.span("together")), rows.span(f"apart{NULL}shuffled_layers")
    layers = int(rows.value("layers"))
    random = f"; random rankings give {tidy(chance.low)} to {tidy(chance.high)}" if chance else ""
    beside = f", and {damage} of those that all damage a layer" if damage else ""
    together, apart = damage.position(MARGIN) if damage else None, own.position(MARGIN)
    wanted = layers * (EQUIVALENCE * (own.mde or 1.0) / MARGIN) ** 2
    one_thing = "Only those agree that measure one thing: the loss after damage to a layer."
    return AGREEMENT.decided(
        f"The mean rank correlation over {counted(layers, 'layer')} is {own} of metrics that share no"
        f" measurement{random}{beside}.",
        seen(rows["apart"], MARGIN, "of mean rank correlation"),
        (apart == "above", SUPPORTED, "Metrics that share no measurement agree."),
        (together == "above" and apart in NOT_ABOVE, BY_NULL, one_thing),
        (together != "open" and apart in NOT_ABOVE, CONTRADICTED, "The metrics are shown not to agree."),
        otherwise=f"{counted(layers, 'layer')} are too few to decide; about {max(layers + 1, round(wanted))} layers"
        " would.",
    )


def _correlation(bounds: Span | None) -> Span | None:
    """The interval cut to what a rank correlation can be."""
    return bounds and bounds.inside(-1.0, 1.0)
