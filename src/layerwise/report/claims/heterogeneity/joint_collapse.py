"""The claim that predicted weights do little harm one by one and destroy the model together."""

from __future__ import annotations

from layerwise.report.claims.claim import BY_NULL, CONTRADICTED, NOT_ABOVE, SUPPORTED, Claim, Published
from layerwise.report.claims.contrasts import contrasts
from layerwise.report.claims.power import needed, on_tokens, seen, widest
from layerwise.report.evidence import Evidence
from layerwise.report.page.wording import counted

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
    "It needs the part predictability, with a text.",
)


def joint_collapse(evidence: Evidence) -> Claim:
    """Do predicted weights do more harm together than one by one, and more than errors of their size?"""
    shares = ("beyond_singles", "beyond_noise")
    rows = contrasts(evidence, JOINT_COLLAPSE.key, "joint", *shares, "layers")
    if rows is None:
        return JOINT_COLLAPSE.unmeasured()
    together = f"Together {counted(int(rows.value('layers')), 'predicted layer')} cost"
    spans = rows.spans("joint", *shares)
    if len(spans) < 3:
        return JOINT_COLLAPSE.undecided(
            f"{together} {rows.value('joint'):+.3g} nats per token.",
            "The text has too few units for an interval: give more.",
        )
    joint, singles, noise = spans
    collapse = joint.against(COLLAPSE)
    beyond = {singles.position(MARGIN), noise.position(MARGIN)}
    by_sum = singles.position(MARGIN) in NOT_ABOVE
    least_known = widest(rows[share] for share in shares)
    return JOINT_COLLAPSE.decided(
        f"{together} {joint.signed} nats per token{on_tokens([rows['joint']])}; the single costs leave a share of"
        f" {singles} of it, random errors of the same norm {noise}.",
        seen(least_known, MARGIN, "of the damage beyond each null"),
        (collapse == "below", CONTRADICTED, "They cost less together than a collapse would."),
        (
            collapse == "above" and beyond == {"above"},
            SUPPORTED,
            "Neither the single costs nor errors of the same size add up to it.",
        ),
        (
            collapse == "above" and not beyond.isdisjoint(NOT_ABOVE),
            BY_NULL,
            "The costs of single layers add up to it." if by_sum else "Random errors of the same norm do as much.",
        ),
        otherwise=f"Whether it is a collapse is not known{needed(rows['joint'], abs(joint.value - COLLAPSE))}."
        if collapse == "open"
        else f"What the nulls leave is not known{needed(least_known, MARGIN)}.",
    )
