"""Two claims about what single layers are worth: that there is a core, and that some layers do harm."""

from __future__ import annotations

import re
from collections.abc import Mapping

from layerwise.report.claims.claim import CONTRAST, Claim, Published, Span, on_tokens, span
from layerwise.report.data import Evidence
from layerwise.report.diagnosis import Diagnosis
from layerwise.report.notation import tidy
from layerwise.report.wording import counted, listed
from layerwise.results.rows import Score

PUBLISHED_HARM = 0.006  # nats per token that removing an anti-layer is said to gain: 0.6 % of perplexity

PLACE = re.compile(r"(\d+)-(\d+)")
"""Where a core is looked for, as the task of its rows has it: the first layer and the last."""

CORE = Published(
    "core",
    "Core layers",
    "A contiguous core, layers 8–11 of 30, matters far more than the rest.",
    "arXiv 2603.19348, abstract; ablation (metric 2)",
    "The place is scaled to the depth and may be off by 1/15 of it. Its contrast is the median effect of skipping a"
    " layer there, less twice the median effect elsewhere (less the margin, where that is more). Supported: the"
    " interval lies above zero at a place. Contradicted: it lies below zero at every place. Explained by the null:"
    " skipping contradicts it, but replacing a layer by its neighbours' average, as was published, shows it, and random"
    " weights of the same norm cost at least four fifths as much there.",
)

ANTI_LAYERS = Published(
    "anti_layers",
    "Anti-layers",
    "Some layers do harm: without layer 14 or 17 the perplexity falls by 0.6 %.",
    "arXiv 2603.19348, abstract; ablation (metric 2)",
    "Supported: a layer is chosen on one half of the text, and on the other half the model is better without it, all"
    " candidates together at 5 %. Contradicted: the simultaneous interval of every layer excludes a gain of 0.006 nats"
    " per token, the published 0.6 %. Explained by the null: the same, though the uncorrected interval of some layer"
    " lies below zero, as the least of many noisy effects does by chance.",
)


def core(evidence: Evidence) -> Claim:
    """Is there a contiguous core of layers, near 8-11 of 30, that matters far more than the rest?

    Read from the contrasts of `layerwise.measure.contrasts.layers`, one a place; the best place is told.

    - supported: skipping shows a core at a place.
    - explained by the null: skipping shows none anywhere, the published intervention shows one, and random weights of
      the same norm do nearly as much: it is what any such damage does.
    - contradicted: skipping shows none at any place.
    - not resolvable: anything else.
    """
    found = evidence.diagnosis
    rows = {task: found.score(CONTRAST, CORE.key, "skip_excess", task) for task in found.tasks(CONTRAST, "skip_excess")}
    known = {
        task: (row, bounds)
        for task, row in rows.items()
        if PLACE.fullmatch(task) and row is not None and (bounds := span(row)) is not None
    }
    if not known:
        return CORE.unmeasured("It needs the effect of skipping every layer, with intervals: layerwise diagnose.")
    place = max(known, key=lambda task: known[task][1].value)
    row, best = known[place]
    figures = (
        f"At layers {place.replace('-', '–')} skipping a layer costs {best.signed} nats per token more than it would"
        f" have to, twice what it costs elsewhere{_least_and_most(found, place)}{on_tokens([row])}."
    )
    power = "" if row.resolution is None else f"Of 100 such runs 80 would see {tidy(row.resolution)} nats above that."
    if any(bounds.position() == "above" for _, bounds in known.values()):
        return CORE.claim("supported", figures, "A typical layer there matters more than twice a typical other.", power)
    if not all(bounds.position() == "below" for _, bounds in known.values()):
        why = "The interval holds both a core and none."
        return CORE.claim("not resolvable", figures, why, power)
    averaged = [place for place in known if _is_damage(found, place)]
    if averaged:
        why = (
            f"Replacing a layer by its neighbours' average shows a core at layers {averaged[0].replace('-', '–')}, but"
            " random weights of the same norm do nearly as much there, and leaving a layer out shows none."
        )
        return CORE.claim("explained by the null", figures, why, power)
    return CORE.claim("contradicted", figures, "At no place near the published one do layers matter so much.", power)


def anti_layers(evidence: Evidence) -> Claim:
    """Are there layers that the model is better without?

    Read from the verdicts (`layerwise.measure.verdicts`), whose intervals hold for all layers together.

    - supported: a layer is harmful, found on one part of the text and confirmed on the other.
    - explained by the null: the published gain is excluded for every layer, though some layer's own interval, not
      corrected for their number, lies below zero.
    - contradicted: the published gain is excluded for every layer, and none looked harmful.
    - not resolvable: none is confirmed, and some layer might still do that much harm.
    """
    found = evidence.diagnosis
    verdicts = found.verdicts()
    bounds = {layer: known for layer, score in verdicts.items() if (known := span(score)) is not None}
    if not verdicts or len(bounds) < len(verdicts):
        return ANTI_LAYERS.unmeasured("It needs verdicts with intervals: layerwise diagnose.")
    tokens = on_tokens(verdicts.values())
    power = _seen(verdicts)
    harmful = [layer for layer, score in verdicts.items() if score.metric == "harmful"]
    if harmful:
        worst = min(harmful, key=lambda layer: bounds[layer].value)
        figures = f"Without layer {worst} the loss changes by {bounds[worst].signed} nats per token{tokens}."
        why = f"Confirmed on a fresh part of the text: {counted(len(harmful), 'layer')} ({_named(harmful)})."
        return ANTI_LAYERS.claim("supported", figures, why, power)
    least = min(bounds, key=lambda layer: bounds[layer].low)
    figures = (
        f"No layer of {len(verdicts)} is harmful; the most that could be gained is at layer {least},"
        f" {bounds[least].signed} nats per token{tokens}."
    )
    if bounds[least].low <= -PUBLISHED_HARM:
        why = f"The published gain, {PUBLISHED_HARM} nats, is neither seen nor excluded."
        return ANTI_LAYERS.claim("not resolvable", figures, why, power)
    naive = [layer for layer, score in found.layers("ablation", "skip").items() if _below_zero(score)]
    if naive:
        why = (
            f"Layer {_named(naive)} looks harmful by itself, as the least of {len(verdicts)} noisy effects often does;"
            f" a gain of {PUBLISHED_HARM} nats, the published size, is excluded for every layer."
        )
        return ANTI_LAYERS.claim("explained by the null", figures, why, power)
    why = f"A gain of {PUBLISHED_HARM} nats, the published size, is excluded for every layer."
    return ANTI_LAYERS.claim("contradicted", figures, why, power)


def _is_damage(found: Diagnosis, place: str) -> bool:
    """Whether the published intervention shows a core that random weights of the same norm nearly reach."""
    average, random = (
        span(found.score(CONTRAST, CORE.key, metric, place)) for metric in ("average_excess", "average_over_random")
    )
    return average is not None and random is not None and average.low > 0.0 and random.high < 0.0


def _least_and_most(found: Diagnosis, place: str) -> str:
    """The effects themselves, in brackets: of the layers of the place, and the greatest of the others."""
    skip = {layer: bounds for layer, row in found.layers("ablation", "skip").items() if (bounds := span(row))}
    first, last = (int(end) for end in place.split("-"))
    inside = [bounds for layer, bounds in skip.items() if first <= layer <= last]
    outside = {layer: bounds for layer, bounds in skip.items() if not first <= layer <= last}
    if not inside or not outside:
        return ""
    most = max(outside, key=lambda layer: outside[layer].value)
    return f" ({_ends(inside)} there, most elsewhere at layer {most}: {outside[most].signed})"


def _ends(spans: list[Span]) -> str:
    ordered = sorted(spans, key=lambda effect: effect.value)
    values = [tidy(end.value, signed=True) for end in (ordered[0], ordered[-1])]
    return values[0] if len(ordered) == 1 else f"{values[0]} to {values[1]}"


def _seen(verdicts: Mapping[int, Score]) -> str:
    """How great a harm would have been found, from the layer known best to the one known least."""
    limits = [score.resolution for score in verdicts.values() if score.resolution is not None]
    if not limits:
        return ""
    least, most = tidy(min(limits)), tidy(max(limits))
    return (
        f"Of 100 such runs 80 would find and confirm harm of {least} (layer known best) to {most} nats (known least)."
    )


def _below_zero(score: Score) -> bool:
    return score.high is not None and score.high < 0.0


def _named(layers: list[int]) -> str:
    return listed([str(layer) for layer in layers])
