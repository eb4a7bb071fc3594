"""Two claims about what single layers are worth: that there is a core, and that some layers do harm."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from layerwise.report.claims.claim import BY_NULL, CONTRADICTED, SUPPORTED, Claim, Published, span
from layerwise.report.claims.contrasts import CONTRAST, Contrasts, contrasts
from layerwise.report.claims.power import on_tokens
from layerwise.report.diagnosis.lookup import DiagnosisScores
from layerwise.report.evidence import Evidence
from layerwise.report.page.number_format import tidy
from layerwise.report.page.wording import counted, listed
from layerwise.results.rows import Score

PUBLISHED_HARM = 0.006  # nats per token that removing an anti-layer is said to gain: 0.6 % of perplexity

RANGE = re.compile(r"(\d+)-(\d+)")
"""Where a core is looked for, as the task of its rows has it: the first layer and the last."""

CORE = Published(
    "core",
    "Core layers",
    "A contiguous core, layers 8–11 of 30, matters far more than the rest.",
    "arXiv 2603.19348, abstract; ablation (metric 2)",
    "The range is scaled to the depth and may be off by 1/15 of it. Its contrast is the median effect of skipping a"
    " layer there, less twice the median effect elsewhere (less the margin, where that is more). Supported: the"
    " interval lies above zero at a range. Contradicted: it lies below zero at every range. Explained by the null:"
    " skipping contradicts it, but replacing a layer by its neighbours' average, as was published, shows it, and random"
    " weights of the same norm cost at least four fifths as much there.",
    "It needs the effect of skipping every layer, with intervals: layerwise diagnose.",
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
    "It needs verdicts with intervals: layerwise diagnose.",
)


def core(evidence: Evidence) -> Claim:
    """Is there a contiguous core of layers, near 8-11 of 30, that matters far more than the rest?

    The contrasts of `layerwise.measure.contrasts.layers` have one task for each range; the best range is shown.
    """
    tasks = (task for task in evidence.diagnosis.tasks(CONTRAST, "skip_excess") if RANGE.fullmatch(task))
    measured = {task: rows for task in tasks if (rows := contrasts(evidence, CORE.key, "skip_excess", task=task))}
    excess = {layers: bounds for layers, rows in measured.items() if (bounds := rows.span("skip_excess")) is not None}
    if not excess:
        return CORE.unmeasured()
    best = max(excess, key=lambda layers: excess[layers].value)
    row = measured[best]["skip_excess"]
    sides = {bounds.position() for bounds in excess.values()}
    damaged = [layers.replace("-", "–") for layers in excess if _is_damage(measured[layers])]
    averaged = (
        f"Replacing a layer by its neighbours' average shows a core at layers {listed(damaged[:1])}, but random weights"
        " of the same norm do nearly as much there, and leaving a layer out shows none."
    )
    return CORE.decided(
        f"At layers {best.replace('-', '–')} skipping a layer costs {excess[best].signed} nats per token more than it"
        f" would have to, twice what it costs elsewhere{_least_and_most(evidence.diagnosis, best)}{on_tokens([row])}.",
        "" if row.mde is None else f"Of 100 such runs 80 would see {tidy(row.mde)} nats above that.",
        ("above" in sides, SUPPORTED, "A typical layer there matters more than twice a typical other."),
        (sides == {"below"} and bool(damaged), BY_NULL, averaged),
        (sides == {"below"}, CONTRADICTED, "At no range near the published one do layers matter so much."),
        otherwise="The interval holds both a core and none.",
    )


def anti_layers(evidence: Evidence) -> Claim:
    """Are there layers that the model is better without?

    The verdicts of `layerwise.measure.stats.verdicts` decide; their intervals hold for all layers together.
    """
    verdicts = evidence.diagnosis.verdicts()
    bounds = {layer: known for layer, score in verdicts.items() if (known := span(score)) is not None}
    if not verdicts or len(bounds) < len(verdicts):
        return ANTI_LAYERS.unmeasured()
    tokens, power = on_tokens(verdicts.values()), _seen(verdicts)
    harmful = [layer for layer, score in verdicts.items() if score.metric == "harmful"]
    if harmful:
        worst = min(harmful, key=lambda layer: bounds[layer].value)
        figures = f"Without layer {worst} the loss changes by {bounds[worst].signed} nats per token{tokens}."
        why = f"Confirmed on a fresh part of the text: {counted(len(harmful), 'layer')} ({_named(harmful)})."
        return Claim(ANTI_LAYERS, SUPPORTED, figures, why, power)
    least = min(bounds, key=lambda layer: bounds[layer].low)
    excluded = bounds[least].low > -PUBLISHED_HARM
    naive = [layer for layer, score in evidence.diagnosis.layers("ablation", "skip").items() if _below_zero(score)]
    gain = f"gain of {PUBLISHED_HARM} nats, the published size, is excluded for every layer."
    chance = f"looks harmful by itself, as the least of {len(verdicts)} noisy effects often does; a {gain}"
    return ANTI_LAYERS.decided(
        f"No layer of {len(verdicts)} is harmful; the most that could be gained is at layer {least},"
        f" {bounds[least].signed} nats per token{tokens}.",
        power,
        (excluded and bool(naive), BY_NULL, f"Layer {_named(naive)} {chance}"),
        (excluded, CONTRADICTED, f"A {gain}"),
        otherwise=f"The published gain, {PUBLISHED_HARM} nats, is neither seen nor excluded.",
    )


def _is_damage(rows: Contrasts) -> bool:
    """Whether the published intervention shows a core that random weights of the same norm nearly reach."""
    average, random = rows.span("average_excess"), rows.span("average_over_random")
    return average is not None and random is not None and average.low > 0.0 and random.high < 0.0


def _least_and_most(diagnosis: DiagnosisScores, layers: str) -> str:
    """The effects themselves, in brackets: of the layers of the range, and the greatest of the others."""
    skip = {layer: bounds for layer, row in diagnosis.layers("ablation", "skip").items() if (bounds := span(row))}
    first, last = (int(end) for end in layers.split("-"))
    inside = sorted(bounds.value for layer, bounds in skip.items() if first <= layer <= last)
    outside = {layer: bounds for layer, bounds in skip.items() if not first <= layer <= last}
    if not inside or not outside:
        return ""
    ends = " to ".join(
        tidy(value, signed=True) for value in (inside if len(inside) == 1 else inside[:: len(inside) - 1])
    )
    most = max(outside, key=lambda layer: outside[layer].value)
    return f" ({ends} there, most elsewhere at layer {most}: {outside[most].signed})"


def _seen(verdicts: Mapping[int, Score]) -> str:
    """How great a harm would have been found, from the layer known best to the one known least."""
    limits = [score.mde for score in verdicts.values() if score.mde is not None]
    if not limits:
        return ""
    least, most = tidy(min(limits)), tidy(max(limits))
    return (
        f"Of 100 such runs 80 would find and confirm harm of {least} (layer known best) to {most} nats (known least)."
    )


def _below_zero(score: Score) -> bool:
    return score.high is not None and score.high < 0.0


def _named(layers: Iterable[int]) -> str:
    return listed([str(layer) for layer in layers])
