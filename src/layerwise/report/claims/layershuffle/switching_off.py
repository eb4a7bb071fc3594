"""A question of the LayerShuffle paper: do layers learn to switch off where they are worth nothing?"""

from __future__ import annotations

from layerwise.report.claims.claim import BY_NULL, CONTRADICTED, SUPPORTED, Claim, Published, Span
from layerwise.report.claims.contrasts import NULLS, contrasts
from layerwise.report.claims.layershuffle.shares import NOT_LEARNED, not_above_chance, skill_in_random_order
from layerwise.report.claims.power import more, widest
from layerwise.report.evidence import Evidence
from layerwise.report.page.number_format import probability, tidy
from layerwise.report.page.wording import listed

RELATED, ALIKE, LEVEL = 0.3, 0.1, 0.05
TOO_FEW = "It takes two seeds, and 8 batches of examples, for an interval."

SWITCHING_OFF = Published(
    "switching_off",
    "Layers switch off",
    "Layers of a model that was trained for any order may learn to switch off their output for inputs that they cannot"
    " process, and leave them to a later layer (asked, not measured).",
    "arXiv 2407.04513v1, section 5",
    "Read from the rank correlation, over the positions of a layer and on the mean over layers, of the norm of what the"
    " layer adds (over that of what it reads) with what the layer is worth there (nats lost without it). Supported: for"
    " layershuffle it is above 0.3, more than when positions are shuffled (p below 0.05), and more than with the worth"
    " of the other layers, and for every arm trained in order it is below 0.3. Explained by the null: it is above 0.3,"
    " but so it is for an arm trained in order, or it is within 0.1 of that with the worth of other layers: then it is"
    " the position that counts, and not the layer. Contradicted: it is below 0.3. Each is read off a 95 % interval over"
    " seeds and batches." + NOT_LEARNED.format("layershuffle in random order"),
    "It needs the arms layershuffle and baseline: layerwise robustness RUN --overwrite.",
)


def switching_off(evidence: Evidence) -> Claim:
    """Is a layer quiet where it is worth nothing, and does that take training for any order?"""
    rows = contrasts(evidence, SWITCHING_OFF.key, "relation", "above_other_layers")
    if rows is None:
        return SWITCHING_OFF.unmeasured()
    relation, own, rivals = rows.span("relation"), rows.span("above_other_layers"), rows.nulls("relation")
    if relation is None or own is None:
        return SWITCHING_OFF.undecided(f"The rank correlation is {tidy(rows.value('relation'))}.", TOO_FEW)
    p = rows["relation"].p
    beside = listed([f"{NULLS[null]} {_shown(span)}" for null, span in rivals.items()])
    shuffled = "" if p is None else f" (p {probability(p)} against shuffled positions)"
    figures = (
        f"What a layer adds is correlated with what it is worth at {_shown(relation)}{shuffled}, {own.signed} more than"
        f" with what other layers are worth{f'; {beside}' if beside else ''}."
    )
    side, sides = relation.against(RELATED), {span.against(RELATED) for span in rivals.values()}
    is_shuffled_apart = p is not None and p < LEVEL
    shown = side == "above" and is_shuffled_apart and own.position() == "above" and sides == {"below"}
    return SWITCHING_OFF.decided(
        figures,
        _seen(rows["relation"].mde),
        not_above_chance(skill_in_random_order(evidence), "Layershuffle in random order"),
        (side == "below", CONTRADICTED, "Layers add about as much where they are worth nothing."),
        (side == "above" and "above" in sides, BY_NULL, "So it is in a model that was trained in order."),
        (side == "above" and _alike(own), BY_NULL, "It is the position that counts: any layer's worth is as related."),
        (shown, SUPPORTED, "Layers are quiet where they are worth nothing, and training in order does not give that."),
        otherwise=f"The intervals hold both answers.{more(widest([rows['relation']]), RELATED)}"
        if sides
        else "No model trained in order was measured: train the arm baseline.",
    )


def _shown(relation: Span) -> str:
    """A rank correlation, its interval cut to what one can be."""
    return str(relation.inside(-1.0, 1.0))


def _alike(own: Span) -> bool:
    return own.position(ALIKE) == "within"


def _seen(mde: float | None) -> str:
    if mde is None:
        return ""
    return f"Of 100 such runs 80 would distinguish {tidy(RELATED - mde)} or {tidy(RELATED + mde)} from {RELATED:g}."
