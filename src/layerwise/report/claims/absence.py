"""Two claims about layers that are left out: a few are not needed, and a repeated layer is worse than none."""

from __future__ import annotations

from layerwise.report.claims.claim import Claim, Published
from layerwise.report.claims.contrasts import contrasts, cost
from layerwise.report.data import Evidence

NOTHING = 0.01  # nats per token, one percent of perplexity
SHARE = 0.25
SWEEP = "It needs windows of several sizes, of a model of 5 layers and more: layerwise sweep MODEL --families painters."

ALL_NEEDED = Published(
    "all_needed",
    "Not all layers are needed",
    "A few middle layers can be left out at little cost, and it costs more and more to leave out others.",
    "arXiv 2407.09298, section 3.2, figure 4",
    "A few layers are the published windows of up to a quarter of the depth, and the whole middle is the widest window."
    " Little is less than their share: per layer left out, a few cost less than the whole does. What is saved is one"
    " minus the ratio of the two; less than a quarter, either way, is nothing. Supported: something is saved, and the"
    " whole costs more than a few. Explained by the null: a few layers cost just their share, within a quarter: every"
    " layer is needed, and fewer cost less because they are fewer. Contradicted: they cost more than their share, or"
    " the whole middle is shown to cost at most 0.01 nats more than a few.",
)


def all_needed(evidence: Evidence) -> Claim:
    """Are all layers needed?

    - supported: what is saved lies above zero, and the cost rises.
    - explained by the null: what is saved lies within the margin: the damage is proportional to the layers left out.
    - contradicted: it lies below zero, or the cost is shown not to rise.
    - not resolvable: anything else.
    """
    found = contrasts(evidence, ALL_NEEDED.key, "saved", "rise")
    if found is None:
        return ALL_NEEDED.unmeasured(SWEEP)
    figures = (
        f"Of its share in the cost of the whole middle, a layer of a few saves {found.shown('saved')}; leaving out the"
        f" whole costs {found.shown('rise')} nats per token more than leaving out a few{found.tokens}."
    )
    power = found.seen("saved", margin=SHARE, unit="of the share")
    saved, rises = found.place("saved", SHARE), found.place("rise", NOTHING)
    if rises in ("within", "below"):
        return ALL_NEEDED.claim("contradicted", figures, "The cost does not rise with the layers left out.", power)
    if saved == "below":
        return ALL_NEEDED.claim("contradicted", figures, "A few layers cost more than their share.", power)
    if rises == "above" and saved == "above":
        return ALL_NEEDED.claim("supported", figures, "A few layers cost less than their share.", power)
    if rises == "above" and saved == "within":
        why = "A few layers cost just their share: fewer cost less because they are fewer."
        return ALL_NEEDED.claim("explained by the null", figures, why, power)
    return ALL_NEEDED.claim("not resolvable", figures, found.needed("saved", margin=SHARE), power)


SAME_FUNCTION = Published(
    "same_function",
    "Middle layers differ in function",
    "Middle layers do different things: repeating the centre layer in their place is worse than leaving them out.",
    "arXiv 2407.09298, section 3.3, figure 5",
    "Costs are averaged over the published windows of more than one layer; less than 5 % of the mean of two costs is no"
    " difference. Supported: repeating costs more than skipping. Explained by the null: repeating does harm, but as"
    " much as skipping does: the absence of the layers is enough to explain it. Contradicted: repeating costs less"
    " than skipping, or is shown to cost at most 0.01 nats.",
)


def same_function(evidence: Evidence) -> Claim:
    """Do the middle layers have different functions?

    - supported: repeating the centre layer costs more than skipping the window.
    - explained by the null: it does harm, and the difference to skipping lies within the margin: absence explains it.
    - contradicted: it costs less than skipping, or is shown to cost nothing.
    - not resolvable: anything else.
    """
    against, repeated = "middle_repeat:skip", "middle_repeat"
    found = contrasts(evidence, SAME_FUNCTION.key, against, repeated)
    if found is None:
        return SAME_FUNCTION.unmeasured(SWEEP)
    figures = (
        f"Repeating the centre layer costs {found.shown(repeated)} nats per token on average over the windows, skipping"
        f" {cost(evidence, 'skip')}; they differ by {found.shown(against)} of the mean of both{found.tokens}."
    )
    power = found.seen(against)
    more, harms = found.place(against), found.place(repeated, NOTHING)
    if harms in ("within", "below"):
        why = "Repeating the centre layer in the place of the others does no harm."
        return SAME_FUNCTION.claim("contradicted", figures, why, power)
    if more == "below":
        why = "Repeating the centre layer costs less than leaving the others out: it does some of their work."
        return SAME_FUNCTION.claim("contradicted", figures, why, power)
    if more == "above":
        return SAME_FUNCTION.claim("supported", figures, "Repeating a layer is worse than leaving layers out.", power)
    if more == "within" and harms == "above":
        why = "Repeating does harm, but as much as absence does."
        return SAME_FUNCTION.claim("explained by the null", figures, why, power)
    return SAME_FUNCTION.claim("not resolvable", figures, found.needed(against), power)
