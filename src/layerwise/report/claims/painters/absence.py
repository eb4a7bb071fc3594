"""Two claims about layers that are left out: a few are not needed, and a repeated layer is worse than none."""

from __future__ import annotations

from layerwise.report.claims.claim import BY_NULL, CONTRADICTED, NOT_ABOVE, SUPPORTED, Claim, Published
from layerwise.report.claims.contrasts import contrasts
from layerwise.report.claims.painters.costs import NOTHING, SWEEP, cost
from layerwise.report.evidence import Evidence

SHARE = 0.25

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
    SWEEP,
)


def all_needed(evidence: Evidence) -> Claim:
    """Are all layers needed?"""
    rows = contrasts(evidence, ALL_NEEDED.key, "saved", "rise")
    if rows is None:
        return ALL_NEEDED.unmeasured()
    saved, rises = rows.position("saved", SHARE), rows.position("rise", NOTHING)
    shared = "A few layers cost just their share: fewer cost less because they are fewer."
    return ALL_NEEDED.decided(
        f"Of its share in the cost of the whole middle, a layer of a few saves {rows.shown('saved')}; leaving out the"
        f" whole costs {rows.shown('rise')} nats per token more than leaving out a few{rows.tokens}.",
        rows.seen("saved", margin=SHARE, unit="of the share"),
        (rises in NOT_ABOVE, CONTRADICTED, "The cost does not rise with the layers left out."),
        (saved == "below", CONTRADICTED, "A few layers cost more than their share."),
        (rises == saved == "above", SUPPORTED, "A few layers cost less than their share."),
        (rises == "above" and saved == "within", BY_NULL, shared),
        otherwise=rows.needed("saved", margin=SHARE),
    )


SAME_FUNCTION = Published(
    "same_function",
    "Middle layers differ in function",
    "Middle layers do different things: repeating the centre layer in their place is worse than leaving them out.",
    "arXiv 2407.09298, section 3.3, figure 5",
    "Costs are averaged over the published windows of more than one layer; less than 5 % of the mean of two costs is no"
    " difference. Supported: repeating costs more than skipping. Explained by the null: repeating does harm, but as"
    " much as skipping does: the absence of the layers is enough to explain it. Contradicted: repeating costs less"
    " than skipping, or is shown to cost at most 0.01 nats.",
    SWEEP,
)


def same_function(evidence: Evidence) -> Claim:
    """Do the middle layers have different functions?"""
    against, repeated = "middle_repeat:skip", "middle_repeat"
    rows = contrasts(evidence, SAME_FUNCTION.key, against, repeated)
    if rows is None:
        return SAME_FUNCTION.unmeasured()
    more, harms = rows.position(against), rows.position(repeated, NOTHING)
    harmless = "Repeating the centre layer in the place of the others does no harm."
    less = "Repeating the centre layer costs less than leaving the others out: it does some of their work."
    return SAME_FUNCTION.decided(
        f"Repeating the centre layer costs {rows.shown(repeated)} nats per token on average over the windows, skipping"
        f" {cost(evidence, 'skip')}; they differ by {rows.shown(against)} of the mean of both{rows.tokens}.",
        rows.seen(against),
        (harms in NOT_ABOVE, CONTRADICTED, harmless),
        (more == "below", CONTRADICTED, less),
        (more == "above", SUPPORTED, "Repeating a layer is worse than leaving layers out."),
        (more == "within" and harms == "above", BY_NULL, "Repeating does harm, but as much as absence does."),
        otherwise=rows.needed(against),
    )
