"""Two claims about the zones of the depth: there are three, and a single layer comes after the middle."""

from __future__ import annotations

from layerwise.report.claims.claim import BY_NULL, CONTRADICTED, SUPPORTED, Claim, Published, span
from layerwise.report.claims.contrasts import Contrasts, contrasts
from layerwise.report.evidence import Evidence
from layerwise.report.page.number_format import between
from layerwise.report.page.wording import counted
from layerwise.report.sweep.zones import MARGIN, in_words, trained_zones

CLEARER = 0.05
LEAST_CONTRAST = MARGIN
PUBLISHED_ZONES = 3

THREE_ZONES = Published(
    "three_zones",
    "The depth has three zones",
    "There are three kinds of representation: those of the lower, of the middle and of the topmost layers.",
    "arXiv 2407.09298, section 3.1, figure 3",
    "The depth is cut into the runs of states that are most alike at equal distance, without sink tokens. The null is a"
    " walk, whose states are less alike the farther apart they are, and which shows blocks in a picture too: one zone"
    " more is accepted where walks with the measured steps separate as much in less than 1 of 100 cases, and where at"
    " equal distance the states across every border are less alike by 0.02 of cosine than those inside. Supported:"
    " three zones, each border clear of zero over documents. Contradicted: another number of zones, each border clear"
    " of zero. Explained by the null: one zone, and the best three are shown to be no clearer than those of walks by"
    " 0.05 of cosine.",
    "It needs the hidden states of 10 layers and more: layerwise sweep MODEL.",
)


def three_zones(evidence: Evidence) -> Claim:
    """Does the depth fall into three zones?"""
    rows = contrasts(evidence, THREE_ZONES.key, "zones", "beyond_walks")
    if rows is None:
        return THREE_ZONES.unmeasured()
    count, own = int(rows.value("zones")), trained_zones(evidence)
    by_margin = "" if own is None else own.by_margin
    clear = "least" in rows and rows.position("least", LEAST_CONTRAST) == "above"
    borders = f", whose least border is worth {rows.shown('least')} of cosine" if "least" in rows else ""
    return THREE_ZONES.decided(
        f"The states fall into {counted(count, 'zone')}{borders}; the least border of the best three zones is worth"
        f" {rows.shown('beyond_walks')} of cosine more than that of walks{rows.tokens}.",
        "",
        (count == PUBLISHED_ZONES and clear, SUPPORTED, "Three zones, clearer than a walk gives."),
        (count > 1 and count != PUBLISHED_ZONES and clear, CONTRADICTED, f"There are {counted(count, 'zone')}."),
        (count == 1 and _is_no_clearer(rows), BY_NULL, _no_clearer(by_margin)),
        otherwise=_open(count, by_margin),
    )


def _is_no_clearer(rows: Contrasts) -> bool:
    """Whether the best three zones are shown not to be clearer than those of walks by what counts."""
    bounds = rows.span("beyond_walks")
    return bounds is not None and bounds.against(CLEARER) == "below"


def _no_clearer(by_margin: str) -> str:
    if by_margin:
        return f"{by_margin} Nor is the least border of the best three clearer than that of walks by {CLEARER:g}."
    return "The best three zones are no clearer than those of a walk."


def _open(count: int, by_margin: str) -> str:
    if count == 1 and by_margin:
        return by_margin
    if count == 1:
        return "No border is clearer than a walk gives, and it is not shown that there is none."
    return "The intervals of the borders hold zero, or there are none: it takes more documents."


ONE_ENDING = Published(
    "one_ending",
    "One ending layer",
    "Whatever the size of the model, exactly one layer belongs to the last zone.",
    "arXiv 2407.09298, appendix A.3, figure 14",
    "The depth is cut into zones as for the claim of three. The middle is the longest zone (the first of equal ones),"
    " and the layers after it are the ending ones. Supported: several zones, each border clear of zero over documents,"
    " and one ending layer. Contradicted: several such zones, and another number of ending layers, or none. Explained"
    " by the null: one zone, and the best three are shown to be no clearer than those of walks by 0.05 of cosine.",
    "It needs the hidden states of 10 layers and more: layerwise sweep MODEL.",
)


def one_ending(evidence: Evidence) -> Claim:
    """Does a single layer come after the middle zone?"""
    rows = contrasts(evidence, THREE_ZONES.key, "zones", "beyond_walks")
    own = trained_zones(evidence)
    if rows is None or own is None:
        return ONE_ENDING.unmeasured()
    spans = [span(score) for score in own.contrasts]
    clear = bool(spans) and all(each is not None and each.position(LEAST_CONTRAST) == "above" for each in spans)
    worth = "".join(f" {between(each.value, each.low, each.high, signed=True)}" for each in own.contrasts)
    borders = f", whose borders are worth{worth} of cosine" if worth else ""
    ending = counted(own.ending, "layer")
    return ONE_ENDING.decided(
        f"The states fall into {counted(len(own.ranges), 'zone')} ({in_words(own)}){borders}; layers:"
        f" {own.beginning} beginning, {own.middle} middle and {own.ending} ending{rows.tokens}.",
        "",
        (clear and own.ending == 1, SUPPORTED, "One layer comes after the middle zone."),
        (clear, CONTRADICTED, f"{ending.capitalize()} come after the middle zone."),
        (len(own.ranges) == 1 and _is_no_clearer(rows), BY_NULL, _no_clearer(own.by_margin)),
        otherwise=_open(len(own.ranges), own.by_margin),
    )
