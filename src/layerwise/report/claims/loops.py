"""Two claims about looped parallel layers: that loops help, and that more layers take more of them."""

from __future__ import annotations

from layerwise.report.claims.absence import SWEEP
from layerwise.report.claims.claim import Claim, Published
from layerwise.report.claims.contrasts import Contrasts, contrasts, cost
from layerwise.report.data import Evidence
from layerwise.report.wording import counted

PER_LAYER = 0.1
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
)


def looping(evidence: Evidence) -> Claim:
    """Does looping help parallel layers?

    - supported: three passes cost less than one, and less than one of gain 3 where that was measured.
    - explained by the null: less than one, but one of gain 3 costs as little (within the margin) or less.
    - contradicted: within the margin of one pass, or more.
    - not resolvable: anything else.
    """
    helps, gain = "parallel:looped_parallel", "gain:looped_parallel"
    found = contrasts(evidence, LOOPING.key, helps)
    if found is None:
        return LOOPING.unmeasured(SWEEP)
    measured = (helps, gain) if gain in found else (helps,)
    against = f", one with a gain of 3 {found.shown(gain)} above them" if gain in found else ""
    figures = (
        f"On average over the windows one pass costs {cost(evidence, 'parallel')} nats per token and three"
        f" {cost(evidence, 'looped_parallel')}; relative to the mean of both, one is {found.shown(helps)} above"
        f" three{against}{found.tokens}."
    )
    power = found.seen(*measured)
    helped, gained = found.place(helps), found.place(gain) if gain in found else "above"
    if helped in ("within", "below"):
        return LOOPING.claim("contradicted", figures, "Three passes cost no less than one.", power)
    if helped == "above" and gained in ("within", "below"):
        why = "One pass that applies as much of the updates costs no more: it is the gain and not the loop."
        return LOOPING.claim("explained by the null", figures, why, power)
    if helped == gained == "above":
        why = f"Three passes cost less than one{', and than one with a gain of 3' if gain in found else f'; {GAINS}'}."
        return LOOPING.claim("supported", figures, why, power)
    return LOOPING.claim("not resolvable", figures, found.needed(*measured), power)


LOOP_COUNT = Published(
    "loop_count",
    "More layers take more loops",
    "The best number of loops is roughly proportional to the number of parallel layers.",
    "arXiv 2407.09298, section 3.7, figure 10",
    "At every published window of more than one layer the loop count of the least loss is taken, and a line is fitted"
    " over the windows, anew on every resample of the documents; a slope inside ±0.1 loops a layer is none. The null is"
    " a gain: one pass at the best gain of each window. Supported: the slope lies above zero, and the best counts cost"
    " less than the best gains, where those were measured. Explained by the null: the slope is there, but the best gain"
    " in one pass costs as little, within 5 % of the mean of both, or less. Contradicted: the slope is none or below"
    " zero, and no window is best at the greatest count that was run.",
)


def loop_count(evidence: Evidence) -> Claim:
    """Does the best number of loops grow with the number of parallel layers?

    - supported: the slope lies above zero, and loops cost less than gains where those were measured.
    - explained by the null: the slope is there, and the best gain in one pass costs no more than the best count.
    - contradicted: the slope is within the margin or below zero, and every best count is below the greatest measured.
    - not resolvable: anything else.
    """
    found = contrasts(evidence, LOOP_COUNT.key, "slope", "at_end")
    if found is None:
        why = "It needs loop counts by window: layerwise sweep MODEL --families painters,looped,gain_sweep."
        return LOOP_COUNT.unmeasured(why)
    gain, ends = "gain:loops", int(found.value("at_end"))
    figures, power = _figures(found, gain, ends), found.seen("slope", margin=PER_LAYER, unit="loops a layer")
    slope, gained = found.place("slope", PER_LAYER), found.place(gain) if gain in found else "above"
    if slope in ("within", "below") and not ends:
        return LOOP_COUNT.claim("contradicted", figures, "More parallel layers take no more loops.", power)
    if slope == "above" and gained in ("within", "below"):
        why = "One pass at the best gain costs no more: loops make up for the mean, which applies less of more layers."
        return LOOP_COUNT.claim("explained by the null", figures, why, power)
    if slope == gained == "above":
        why = f"More parallel layers take more loops{', and no gain does as well' if gain in found else f'; {GAINS}'}."
        return LOOP_COUNT.claim("supported", figures, why, power)
    why = "More loops than were run may be best." if ends else found.needed("slope", margin=PER_LAYER)
    return LOOP_COUNT.claim("not resolvable", figures, why, power)


def _figures(found: Contrasts, gain: str, ends: int) -> str:
    last = f"; {counted(ends, 'window')} of them best at the greatest count run" if ends else ""
    against = f"; the best gains cost {found.shown(gain)} of the mean of both above them" if gain in found else ""
    grows = f"Each layer more in parallel takes {found.shown('slope')} loops more at the best counts"
    return f"{grows}{last}{against}{found.tokens}."
