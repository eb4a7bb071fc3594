"""The claim that layers which matter little are redundant: together, not one by one."""

from __future__ import annotations

from layerwise.report.claims.claim import BY_NULL, CONTRADICTED, NOT_ABOVE, SUPPORTED, Claim, Published
from layerwise.report.claims.contrasts import contrasts
from layerwise.report.claims.power import needed, on_tokens, seen
from layerwise.report.evidence import Evidence
from layerwise.report.page.number_format import tidy
from layerwise.report.page.wording import counted

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
    "It needs the part pruning, and the effect of skipping every layer.",
)


def redundant_sets(evidence: Evidence) -> Claim:
    """Are the layers that are redundant one by one redundant together, more so than any layers?"""
    rows = contrasts(evidence, REDUNDANT_SETS.key, "joint", "spared", "layers", "singles")
    if rows is None:
        return REDUNDANT_SETS.unmeasured()
    joint, cost, less = rows["joint"], rows.span("joint"), rows.span("spared")
    together = f"Dropping {counted(int(rows.value('layers')), 'layer')} together costs"
    if cost is None or less is None:
        return REDUNDANT_SETS.undecided(
            f"{together} {tidy(joint.value, signed=True)} nats per token.",
            "The text has too few units for an interval.",
        )
    side, spared = cost.against(SURVIVES), less.position(MARGIN)
    need = needed(joint, abs(joint.value - SURVIVES)) if side == "open" else needed(rows["spared"], MARGIN)
    survives = "The model survives without them, and not without as many others."
    return REDUNDANT_SETS.decided(
        f"{together} {cost.signed} nats per token{on_tokens([joint])}, one by one they add up to"
        f" {tidy(rows.value('singles'), signed=True)}; random sets of as many cost {less.signed} more.",
        seen(joint, 0.0, f"nats to either side of {SURVIVES:g}"),
        (side == "above", CONTRADICTED, "Together they cost more than what was survived, though not one by one."),
        (side == "below" and spared == "above", SUPPORTED, survives),
        (side == "below" and spared in NOT_ABOVE, BY_NULL, "Random sets of layers do as well."),
        otherwise=f"The interval holds both answers{need}.",
    )
