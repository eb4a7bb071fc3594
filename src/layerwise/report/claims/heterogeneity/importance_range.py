"""The claim that layers differ in importance by seven orders of magnitude."""

from __future__ import annotations

from layerwise.report.claims.claim import BY_NULL, CONTRADICTED, SUPPORTED, Claim, Published
from layerwise.report.claims.contrasts import contrasts
from layerwise.report.claims.power import needed, on_tokens, seen
from layerwise.report.evidence import Evidence
from layerwise.report.page.number_format import between, tidy

BOUND = 2.0

IMPORTANCE_RANGE = Published(
    "importance_range",
    "Importance spans orders of magnitude",
    "The effects of changing single layers span a range of about 10⁷.",
    "arXiv 2603.19348, abstract; ablation degradation (metric 2)",
    "The published range divides by the effect nearest to zero, and how near one comes is chance. So the range is that"
    f" of the largest effect of skipping to the median layer's, in nats per token, and the bound is 10^{BOUND:g}."
    " Supported: the interval of its logarithm lies above the bound. Explained by the null: it lies below, while the"
    " ratio to the effect nearest to zero is beyond the bound: a ratio that any effects have which come near zero."
    " Contradicted: it lies below, and so does the interval of the published ratio. Anything else is not resolvable.",
    "It needs the part ablation.",
)


def importance_range(evidence: Evidence) -> Claim:
    """Is the largest effect of a layer more than a hundred times that of the median layer?"""
    rows = contrasts(evidence, IMPORTANCE_RANGE.key, "range", "published")
    if rows is None:
        return IMPORTANCE_RANGE.unmeasured()
    own, published = rows["range"], rows["published"]
    figures = (
        f"The largest effect is 10^{between(own.value, own.low, own.high)} times the median layer's{on_tokens([own])},"
        f" and 10^{tidy(published.value)} times the one nearest to zero."
    )
    bounds, naive = rows.span("range"), rows.span("published")
    if bounds is None or naive is None:
        return IMPORTANCE_RANGE.undecided(figures, "The text has too few units for an interval.")
    side = bounds.against(BOUND)
    less = side == "below" and naive.against(BOUND) == "below"
    unbounded = "The published ratio grows without bound as any effect nears zero; to the middle it is less than 100."
    to_least = needed(published, abs(published.value - BOUND))
    to_median = needed(own, abs(own.value - BOUND))
    return IMPORTANCE_RANGE.decided(
        figures,
        seen(own, 0.0, f"orders of magnitude to either side of {BOUND:g}"),
        (side == "above", SUPPORTED, "The largest is beyond a hundred median layers."),
        (side == "below" and published.value >= BOUND, BY_NULL, unbounded),
        (less, CONTRADICTED, "The largest is less than a hundred times both the median and the least."),
        otherwise=f"It is less than 100 to the median layer; to the least one, that is not known{to_least}."
        if side == "below"
        else f"Whether it is more than a hundredfold is not known{to_median}.",
    )
