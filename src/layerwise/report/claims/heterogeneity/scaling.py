"""The claim that only scaling leaves a layer working."""

from __future__ import annotations

from layerwise.report.claims.claim import BY_NULL, CONTRADICTED, NOT_ABOVE, SUPPORTED, Claim, Published
from layerwise.report.claims.contrasts import contrasts
from layerwise.report.claims.heterogeneity.strategies import as_mild, compared, costs
from layerwise.report.claims.power import needed, on_tokens, seen, widest
from layerwise.report.evidence import Evidence

MARGIN = 0.01

SCALING = Published(
    "scaling",
    "Only scaling survives",
    "A layer survives scaling by 0.9 (perplexity +19 %); replaced or perturbed in four other ways it costs millions of"
    " percent.",
    "arXiv 2603.19348, manipulation robustness (metric 4)",
    "Every strategy is compared with scaling at one size, a tenth of the weights' norm, by what it costs more at the"
    f" median layer; simultaneous 95 % intervals. The margin is {MARGIN:g} nats per token. Supported: each of the"
    " others costs more than scaling, by an interval above zero that reaches beyond the margin. Explained by the null:"
    " some other is shown to cost no more than the margin more, while at their largest sizes, as published, all cost"
    " more than scaling at a tenth: size, not kind. Contradicted: some other is as mild, and even the unequal"
    " comparison does not favour scaling. Anything else is not resolvable.",
    "It needs the part manipulation: scaling and another strategy at one relative size.",
)


def scaling(evidence: Evidence) -> Claim:
    """Of all ways to change a layer's weights, is scaling the mildest at one size?"""
    rows = contrasts(evidence, SCALING.key)
    equal, unequal = compared(rows)
    if rows is None or not equal:
        return SCALING.unmeasured()
    positions = rows.positions(*equal, margin=MARGIN)
    larger = set(rows.positions(*unequal, margin=MARGIN).values())
    least_known = widest(rows[metric] for metric in equal)
    mild = as_mild(rows, equal, MARGIN)
    size = f"At equal size {mild} cost no more; the published comparison gave the others larger changes."
    return SCALING.decided(
        f"Beyond scaling by 0.9, at the same ‖ΔW‖/‖W‖ = 0.1 and the median layer: {costs(rows, equal)} nats per"
        f" token{on_tokens(rows[metric] for metric in equal)}; at their largest sizes {costs(rows, unequal)}.",
        seen(least_known, MARGIN, "nats beyond scaling"),
        (
            set(positions.values()) == {"above"},
            SUPPORTED,
            "At equal size scaling costs less than each of the others.",
        ),
        (bool(mild) and larger == {"above"}, BY_NULL, size),
        (
            bool(mild) and not larger.isdisjoint(NOT_ABOVE),
            CONTRADICTED,
            f"As mild as scaling at equal size: {mild}.",
        ),
        otherwise=f"At equal size the strategies are not distinguished{needed(least_known, MARGIN)}.",
    )
