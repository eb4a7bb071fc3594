"""The claim that layers which matter little are redundant: together, not one by one."""

from __future__ import annotations

from layerwise.report.claims.claim import CONTRAST, Claim, Published, needed, on_tokens, seen, span
from layerwise.report.data import Evidence
from layerwise.report.notation import tidy
from layerwise.report.wording import counted

SURVIVES = 0.2
MARGIN = 0.05

REDUNDANT_SETS = Published(
    "redundant_sets",
    "Redundant layers are redundant together",
    "Layers that cost little one by one form redundant tissue, of which the model survives the change (perplexity +19 %"
    " at most).",
    "arXiv 2603.19348, layer classes and manipulation robustness (metric 4)",
    "One half of the text chooses the largest set whose single effects add up to less than"
    f" {SURVIVES:g} nats per token (two layers at least), the other half judges it whole. Supported: dropping it costs"
    f" less than {SURVIVES:g} nats, by its interval, and less than random sets of as many layers do, by an interval"
    f" above zero and not within {MARGIN:g}. Explained by the null: it costs less than that, and random sets are shown"
    f" to cost no more than {MARGIN:g} more. Contradicted: it is shown to cost more than {SURVIVES:g}. Anything else is"
    " not resolvable.",
)


def redundant_sets(evidence: Evidence) -> Claim:
    """Are the layers that are redundant one by one redundant together, more so than any layers?

    - supported (true): C below 0.2 nats; R - C above zero and not within 0.05.
    - explained by the null: C below 0.2 nats; R - C within 0.05 or below zero.
    - contradicted (false): C above 0.2 nats.
    - not resolvable (underpowered): anything else.
    """
    found = evidence.diagnosis
    metrics = ("joint", "spared", "layers", "singles")
    joint, spared, layers, singles = (found.score(CONTRAST, REDUNDANT_SETS.key, metric) for metric in metrics)
    if joint is None or spared is None or layers is None or singles is None:
        return REDUNDANT_SETS.unmeasured("It needs the part pruning, and the effect of skipping every layer.")
    cost, less = span(joint), span(spared)
    set_of = counted(int(layers.value), "layer")
    if cost is None or less is None:
        figures = f"Dropping {set_of} together costs {tidy(joint.value, signed=True)} nats per token."
        return REDUNDANT_SETS.claim("not resolvable", figures, "The text has too few units for an interval.")
    figures = (
        f"Dropping {set_of} together costs {cost.signed} nats per token{on_tokens([joint])}, one by one they add up to"
        f" {tidy(singles.value, signed=True)}; random sets of as many cost {less.signed} more."
    )
    power = seen(joint, 0.0, f"nats to either side of {SURVIVES:g}")
    position, margin = cost.less(SURVIVES).position(), less.position(MARGIN)
    if position == "above":
        why = "Together they cost more than what was survived, though not one by one."
        return REDUNDANT_SETS.claim("contradicted", figures, why, power)
    if position == "below" and margin == "above":
        why = "The model survives without them, and not without as many others."
        return REDUNDANT_SETS.claim("supported", figures, why, power)
    if position == "below" and margin in ("within", "below"):
        return REDUNDANT_SETS.claim("explained by the null", figures, "Random sets of layers do as well.", power)
    score, distance = (joint, abs(joint.value - SURVIVES)) if position == "open" else (spared, MARGIN)
    need = needed(score, distance)
    why = "The interval holds both answers" + (f"; {need}." if need else ".")
    return REDUNDANT_SETS.claim("not resolvable", figures, why, power)
