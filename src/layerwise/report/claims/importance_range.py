"""The claim that layers differ in importance by seven orders of magnitude."""

from __future__ import annotations

from layerwise.report.claims.claim import CONTRAST, Claim, Published, needed, on_tokens, seen, span
from layerwise.report.data import Evidence
from layerwise.report.notation import between, tidy

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
)


def importance_range(evidence: Evidence) -> Claim:
    """Is the largest effect of a layer more than a hundred times that of the median layer?

    - supported (true): log10(largest / median) lies above 2.
    - explained by the null: it lies below 2, and log10(largest / nearest to zero) is 2 or more.
    - contradicted (false): both lie below 2.
    - not resolvable (underpowered): anything else.
    """
    found = evidence.diagnosis
    rows = [found.score(CONTRAST, IMPORTANCE_RANGE.key, metric) for metric in ("range", "published")]
    own, published = rows
    if own is None or published is None:
        return IMPORTANCE_RANGE.unmeasured("It needs the part ablation.")
    bounds, naive = span(own), span(published)
    figures = (
        f"The largest effect is 10^{between(own.value, own.low, own.high)} times the median layer's{on_tokens([own])},"
        f" and 10^{tidy(published.value)} times the one nearest to zero."
    )
    if bounds is None or naive is None:
        return IMPORTANCE_RANGE.claim("not resolvable", figures, "The text has too few units for an interval.")
    power = seen(own, 0.0, f"orders of magnitude to either side of {BOUND:g}")
    position = bounds.less(BOUND).position()
    if position == "above":
        return IMPORTANCE_RANGE.claim("supported", figures, "The largest is beyond a hundred median layers.", power)
    if position == "below" and published.value >= BOUND:
        why = "The published ratio grows without bound as any effect nears zero; to the middle it is less than 100."
        return IMPORTANCE_RANGE.claim("explained by the null", figures, why, power)
    if position == "below" and naive.less(BOUND).position() == "below":
        why = "The largest is less than a hundred times both the median and the least."
        return IMPORTANCE_RANGE.claim("contradicted", figures, why, power)
    if position == "below":
        need = needed(published, abs(published.value - BOUND))
        why = "It is less than 100 to the median layer; to the least one, that is not known" + (
            f"; {need}." if need else "."
        )
        return IMPORTANCE_RANGE.claim("not resolvable", figures, why, power)
    need = needed(own, abs(own.value - BOUND))
    why = "Whether it is more than a hundredfold is not known" + (f"; {need}." if need else ".")
    return IMPORTANCE_RANGE.claim("not resolvable", figures, why, power)
