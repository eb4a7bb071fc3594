"""The claim that five independent metrics agree on which layers matter."""

from __future__ import annotations

from layerwise.report.claims.claim import CONTRAST, EQUIVALENCE, Claim, Published, seen, span
from layerwise.report.data import Evidence
from layerwise.report.diagnosis import NULL
from layerwise.report.notation import tidy
from layerwise.report.wording import counted

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
)


def agreement(evidence: Evidence) -> Claim:
    """Do metrics that share no measurement rank the layers alike?

    - supported (true): the mean correlation of pairs apart is above zero, not within the margin.
    - explained by the null: that is within the margin or below zero; that of pairs of damage is above.
    - contradicted (false): both are within the margin or below zero; or the first is, and there is no other.
    - not resolvable (underpowered): anything else.
    """
    found = evidence.diagnosis
    same, apart, count, band = (
        found.score(CONTRAST, AGREEMENT.key, metric)
        for metric in ("together", "apart", "layers", f"apart{NULL}shuffled_layers")
    )
    damage, own, chance = span(same), span(apart), span(band)
    if apart is None or own is None or count is None:
        why = "It needs the parts ablation, proxies and predictability (or more) over at least 6 layers."
        return AGREEMENT.unmeasured(why)
    layers = int(count.value)
    told = f"; random rankings give {tidy(chance.low)} to {tidy(chance.high)}" if chance else ""
    beside = f", and {damage} of those that all damage a layer" if damage else ""
    figures = (
        f"The mean rank correlation over {counted(layers, 'layer')} is {own} of metrics that share no"
        f" measurement{told}{beside}."
    )
    power = seen(apart, MARGIN, "of mean rank correlation")
    together, position = damage.position(MARGIN) if damage else None, own.position(MARGIN)
    if position == "above":
        return AGREEMENT.claim("supported", figures, "Metrics that share no measurement agree.", power)
    if together == "above" and position in ("within", "below"):
        why = "Only those agree that measure one thing: the loss after damage to a layer."
        return AGREEMENT.claim("explained by the null", figures, why, power)
    if together != "open" and position in ("within", "below"):
        return AGREEMENT.claim("contradicted", figures, "The metrics are shown not to agree.", power)
    wanted = layers * (EQUIVALENCE * (apart.resolution or 1.0) / MARGIN) ** 2
    why = f"{counted(layers, 'layer')} are too few to tell; about {max(layers + 1, round(wanted))} layers would."
    return AGREEMENT.claim("not resolvable", figures, why, power)
