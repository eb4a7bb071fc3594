"""Two claims about looped parallel layers: that loops help, and that more layers take more of them."""

from __future__ import annotations

from layerwise.report.claims.claim import BY_NULL, CONTRADICTED, NOT_ABOVE, SUPPORTED, Claim, Published
from layerwise.report.claims.contrasts import contrasts
from layerwise.report.claims.painters.costs import SWEEP, cost
from layerwise.report.evidence import Evidence
from layerwise.report.page.wording import counted

PER_LAYER = 0.1
NATS = "gain-loops"
GAINS = "whether one pass with a gain does as well was not measured (--families painters,looped,gain_sweep)"

LOOPING = Published(
    "looping",
    "Looping parallel layers helps",
    "Feeding the mean of parallel layers back to them, three passes in all, is better than one pass.",
    "arXiv 2407.09298, section 3.7, figure 9",
    "Costs are averaged over the published windows of more than one layer; less than 5 % of the mean of two costs is no"
    " difference. The null is a gain: one pass of the mean applies 1/M of the layers' updates, so three passes may help"
    " only by applying more of them, which one pass with a gain of 3 does too. Supported: three passes cost less than"
    " one, and less than one with a gain of 3 where that was measured. Explained by the null: they cost less than one,"
    " but a gain of 3 does as well, within 5 %, or better. Contradicted: three passes cost as much as one, within 5 %,"
    " or more.",
    SWEEP,
)


def looping(evidence: Evidence) -> Claim:
    """Does looping help parallel layers?"""
    helps, gain = "parallel:looped_parallel", "gain:looped_parallel"
    rows = contrasts(evidence, LOOPING.key, helps)
    if rows is None:
        return LOOPING.unmeasured()
    measured = (helps, gain) if gain in rows else (helps,)
    against = f", one with a gain of 3 {rows.shown(gain)} above them" if gain in rows else ""
    helped, gained = rows.position(helps), rows.position(gain) if gain in rows else "above"
    by_gain = "One pass that applies as much of the updates costs no more: it is the gain and not the loop."
    beside = ", and than one with a gain of 3" if gain in rows else f"; {GAINS}"
    return LOOPING.decided(
        f"On average over the windows one pass costs {cost(evidence, 'parallel')} nats per token and three"
        f" {cost(evidence, 'looped_parallel')}; relative to the mean of both, one is {rows.shown(helps)} above"
        f" three{against}{rows.tokens}.",
        rows.seen(*measured),
        (helped in NOT_ABOVE, CONTRADICTED, "Three passes cost no less than one."),
        (helped == "above" and gained in NOT_ABOVE, BY_NULL, by_gain),
        (helped == gained == "above", SUPPORTED, f"Three passes cost less than one{beside}."),
        otherwise=rows.needed(*measured),
    )


LOOP_COUNT = Published(
    "loop_count",
    "More layers take more loops",
    "The best number of loops is roughly proportional to the number of parallel layers.",
    "arXiv 2407.09298, section 3.7, figure 10",
    "At every published window of more than one layer the loop count of the least loss is taken, and a line is fitted"
    " over the windows, anew on every resample of the documents; a slope inside ±0.1 loops a layer is none. The null is"
    " a gain: one pass at the best gain of each window. The best of many is flattered by the text that chose it, so"
    " counts and gains are chosen on one half of the documents and compared on the other. Supported: the slope lies"
    " above zero, and the best counts cost less than the best gains, where those were measured. Explained by the null:"
    " the slope is there, but the best gain in one pass costs as little, within 5 % of the mean of both, or less."
    " Contradicted: the slope is none or below zero, and no window is best at the greatest count that was run.",
    "It needs loop counts by window: layerwise sweep MODEL --families painters,looped,gain_sweep.",
)


def loop_count(evidence: Evidence) -> Claim:
    """Does the best number of loops grow with the number of parallel layers?"""
    rows = contrasts(evidence, LOOP_COUNT.key, "slope", "at_end")
    if rows is None:
        return LOOP_COUNT.unmeasured()
    gain, ends = "gain:loops", int(rows.value("at_end"))
    last = f"; {counted(ends, 'window')} of them best at the greatest count run" if ends else ""
    nats = f", {rows.shown(NATS)} nats per token" if NATS in rows else ""
    against = (
        f"; on text that did not choose them the best gains cost {rows.shown(gain)} of the mean of both above"
        f" them{nats}"
        if gain in rows
        else ""
    )
    slope, gained = rows.position("slope", PER_LAYER), rows.position(gain) if gain in rows else "above"
    by_gain = "One pass at the best gain costs no more: loops make up for the mean, which applies less of more layers."
    beside = ", and no gain does as well" if gain in rows else f"; {GAINS}"
    return LOOP_COUNT.decided(
        f"Each layer more in parallel takes {rows.shown('slope')} loops more at the best counts"
        f"{last}{against}{rows.tokens}.",
        rows.seen("slope", margin=PER_LAYER, unit="loops a layer"),
        (slope in NOT_ABOVE and not ends, CONTRADICTED, "More parallel layers take no more loops."),
        (slope == "above" and gained in NOT_ABOVE, BY_NULL, by_gain),
        (slope == gained == "above", SUPPORTED, f"More parallel layers take more loops{beside}."),
        otherwise="More loops than were run may be best." if ends else rows.needed("slope", margin=PER_LAYER),
    )
