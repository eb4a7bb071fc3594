"""The claim that predicted weights do little harm one by one and destroy the model together."""

from __future__ import annotations

from layerwise.report.claims.claim import CONTRAST, Claim, Published, needed, on_tokens, seen, span
from layerwise.report.data import Evidence
from layerwise.report.wording import counted

COLLAPSE = 1.0
MARGIN = 0.2

JOINT_COLLAPSE = Published(
    "joint_collapse",
    "Predicted weights collapse together",
    "One layer replaced by its prediction costs 16 % of perplexity (26.2 instead of 22.6), nine or more destroy the"
    " model (above 100,000).",
    "arXiv 2603.19348, weight predictability (metric 1)",
    f"A collapse is a joint cost above {COLLAPSE:g} nat per token, shown by its interval. Two nulls could make it: the"
    " costs of single layers that add up, and random errors of the same norm in the same layers. Supported: there is a"
    f" collapse, and neither explains it: each leaves a share of the damage above zero and not within {MARGIN:g}."
    f" Explained by the null: there is a collapse, and one of the two is shown to do all of it but a share of"
    f" {MARGIN:g}. Contradicted: the joint cost is shown to be below the collapse. Anything else is not resolvable.",
)


def joint_collapse(evidence: Evidence) -> Claim:
    """Do predicted weights do more harm together than one by one, and more than errors of their size?

    - supported (true): J above 1 nat; 1 - S/J and 1 - R/J above zero and not within the margin.
    - explained by the null: J above 1 nat; one of the two shares within the margin or below zero.
    - contradicted (false): J below 1 nat.
    - not resolvable (underpowered): anything else.
    """
    found = evidence.diagnosis
    rows = {
        metric: found.score(CONTRAST, JOINT_COLLAPSE.key, metric)
        for metric in ("joint", "beyond_singles", "beyond_noise", "layers")
    }
    joint, singles, noise, layers = rows.values()
    if joint is None or singles is None or noise is None or layers is None:
        return JOINT_COLLAPSE.unmeasured("It needs the part predictability, with a text.")
    spans = [span(score) for score in (joint, singles, noise)]
    if spans[0] is None or spans[1] is None or spans[2] is None:
        figures = f"Together {counted(int(layers.value), 'predicted layer')} cost {joint.value:+.3g} nats per token."
        return JOINT_COLLAPSE.claim("not resolvable", figures, "The text has too few units for an interval: give more.")
    figures = (
        f"Together {counted(int(layers.value), 'predicted layer')} cost {spans[0].signed} nats per token"
        f"{on_tokens([joint])}; the single costs leave a share of {spans[1]} of it, random errors of the same norm"
        f" {spans[2]}."
    )
    worst = max((singles, noise), key=lambda score: score.resolution or 0.0)
    power = seen(worst, MARGIN, "of the damage beyond each null")
    collapse = spans[0].less(COLLAPSE).position()
    if collapse == "below":
        return JOINT_COLLAPSE.claim("contradicted", figures, "They cost less together than a collapse would.", power)
    shares = [each.position(MARGIN) for each in spans[1:] if each is not None]
    if collapse == "above" and all(share == "above" for share in shares):
        why = "Neither the single costs nor errors of the same size add up to it."
        return JOINT_COLLAPSE.claim("supported", figures, why, power)
    if collapse == "above" and any(share in ("within", "below") for share in shares):
        by_sum = shares[0] in ("within", "below")
        why = "The costs of single layers add up to it." if by_sum else "Random errors of the same norm do as much."
        return JOINT_COLLAPSE.claim("explained by the null", figures, why, power)
    if collapse == "open":
        need = needed(joint, abs(joint.value - COLLAPSE))
        why = "Whether it is a collapse is not known" + (f"; {need}." if need else ".")
    else:
        need = needed(worst, MARGIN)
        why = "What the nulls leave is not known" + (f"; {need}." if need else ".")
    return JOINT_COLLAPSE.claim("not resolvable", figures, why, power)
