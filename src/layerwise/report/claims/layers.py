"""Two claims about what single layers are worth: that there is a core, and that some layers do harm."""

from __future__ import annotations

from collections.abc import Mapping

from layerwise.report.claims.claim import Claim, Published, Span, on_tokens, span
from layerwise.report.data import Evidence
from layerwise.report.diagnosis import Diagnosis
from layerwise.report.notation import tidy
from layerwise.report.wording import counted, listed
from layerwise.results.rows import Score

PUBLISHED_DEPTH = 30
PUBLISHED_CORE = (8, 11)
PUBLISHED_HARM = 0.006  # nats per token that removing an anti-layer is said to gain: 0.6 % of perplexity
FEWEST_LAYERS = 4
SLACK = 15  # a core counts as near the published place when it is off by at most 1/15 of the depth


CORE = Published(
    "core",
    "Core layers",
    "A contiguous core, layers 8–11 of 30, matters far more than the rest.",
    "arXiv 2603.19348, abstract; ablation (metric 2)",
    "",
)


def core(evidence: Evidence) -> Claim:
    """Is there a contiguous core of layers, near 8-11 of 30, that matters most?

    The published place is scaled to the depth, and `k` is its width. A *core* is there when the k greatest effects
    stand side by side, at most 1/15 of the depth off the place, each told apart from every other layer's.

    - supported: skipping layers shows a core.
    - explained by the null: skipping does not, replacing a layer by its neighbours' average (the published
      intervention) does, and random weights of the same norm cost no less there: it is what any such damage does.
    - contradicted: the layer that matters most stands elsewhere, told apart from every layer of the place.
    - not resolvable: anything else.
    """
    found = evidence.diagnosis
    skip = _spans(found, "skip")
    if len(skip) < max(FEWEST_LAYERS, found.depth):
        return CORE.unmeasured("It needs the effect of skipping every layer.")
    place = _place(found.depth)
    top = _top(skip, len(place))
    outside = set(skip) - set(_near(place, found.depth))
    leader = max(skip, key=lambda layer: skip[layer].value)
    figures = (
        f"Skipping costs most at layer {leader}, {skip[leader].signed} nats per token; at layers"
        f" {place[0]}–{place[-1]}, the published place, it costs {_ends(skip, place)}"
        f"{on_tokens(found.layers('ablation', 'skip').values())}."
    )
    if _is_core(skip, place, found.depth):
        why = f"The {len(top)} greatest effects, layers {_named(top)}, stand side by side and apart from all others."
        return CORE.claim("supported", figures, why)
    average, random = _spans(found, "neighbour_average"), _spans(found, "random")
    at = _top(average, len(place)) if _is_core(average, place, found.depth) else []
    if at and all(layer in random and not average[layer].above(random[layer]) for layer in at):
        why = (
            f"Replacing a layer by its neighbours' average costs most at layers {_named(at)}, but random weights of the"
            " same norm cost no less there, and leaving a layer out shows no core."
        )
        return CORE.claim("explained by the null", figures, why)
    inside = [skip[layer] for layer in _near(place, found.depth)]
    if leader in outside and all(skip[leader].above(other) for other in inside):
        why = f"The layer that matters most is {leader}, told apart from every layer near the published place."
        return CORE.claim("contradicted", figures, why)
    return CORE.claim("not resolvable", figures, "The greatest effects are not told apart from the others.")


ANTI_LAYERS = Published(
    "anti_layers",
    "Anti-layers",
    "Some layers do harm: without layer 14 or 17 the perplexity falls by 0.6 %.",
    "arXiv 2603.19348, abstract; ablation (metric 2)",
    "",
)


def anti_layers(evidence: Evidence) -> Claim:
    """Are there layers that the model is better without?

    - supported: a layer is harmful, found on one part of the text and confirmed on the other.
    - explained by the null: none is, though a layer looked harmful before it was confirmed (its interval below zero):
      the least of many noisy effects, which is negative by selection.
    - contradicted: none is, and every verdict would have seen the published size of 0.006 nats.
    - not resolvable: none is, but an effect of that size could not have been seen.
    """
    found = evidence.diagnosis
    verdicts = found.verdicts()
    if not verdicts:
        return ANTI_LAYERS.unmeasured("It needs verdicts confirmed on a fresh part of the text.")
    tokens = on_tokens(verdicts.values())
    harmful = {layer: score for layer, score in verdicts.items() if score.metric == "harmful"}
    if harmful:
        worst = min(harmful, key=lambda layer: harmful[layer].value)
        figures = f"Without layer {worst} the loss changes by {_signed(harmful[worst])} nats per token{tokens}."
        why = f"Confirmed on a fresh part of the text: {_layers(harmful)}."
        return ANTI_LAYERS.claim("supported", figures, why)
    blind = max((s.resolution or 0.0 for s in verdicts.values() if s.metric == "no_effect"), default=0.0)
    least = min(verdicts, key=lambda layer: verdicts[layer].value)
    seen = f", and for some layers nothing below {tidy(blind)} nats could be seen" if blind else ""
    figures = (
        f"No layer of {len(verdicts)} is harmful; the least effect is that of layer {least},"
        f" {_signed(verdicts[least])} nats per token{tokens}{seen}."
    )
    suspects = [layer for layer, effect in _spans(found, "skip").items() if effect.high < 0.0]
    if suspects:
        why = (
            f"Layer {_named(suspects)} looked harmful, as the least of {len(verdicts)} noisy effects often does;"
            " the fresh text did not confirm it."
        )
        return ANTI_LAYERS.claim("explained by the null", figures, why)
    if blind <= PUBLISHED_HARM:
        why = f"A gain of the published size, {PUBLISHED_HARM} nats, would have been seen."
        return ANTI_LAYERS.claim("contradicted", figures, why)
    why = f"The published gain is {PUBLISHED_HARM} nats: it takes more text to see or to exclude it."
    return ANTI_LAYERS.claim("not resolvable", figures, why)


def _spans(found: Diagnosis, metric: str) -> dict[int, Span]:
    scores = found.layers("ablation", metric)
    return {layer: bounds for layer, score in scores.items() if (bounds := span(score)) is not None}


def _place(depth: int) -> list[int]:
    """The published core, scaled: layers 8-11 of 30 are layers 3-4 of 12."""
    first, last = (round(layer * (depth - 1) / (PUBLISHED_DEPTH - 1)) for layer in PUBLISHED_CORE)
    return list(range(first, last + 1))


def _near(place: list[int], depth: int) -> range:
    slack = round(depth / SLACK)
    return range(max(0, place[0] - slack), min(depth, place[-1] + slack + 1))


def _top(effects: Mapping[int, Span], count: int) -> list[int]:
    return sorted(sorted(effects, key=lambda layer: -effects[layer].value)[:count])


def _is_core(effects: Mapping[int, Span], place: list[int], depth: int) -> bool:
    if len(effects) < depth - 2:  # the ends have one neighbour and no average of two
        return False
    top = _top(effects, len(place))
    rest = [effects[layer] for layer in effects if layer not in top]
    beside = top[-1] - top[0] + 1 == len(top) and set(top) <= set(_near(place, depth))
    return beside and all(effects[layer].above(other) for layer in top for other in rest)


def _ends(effects: Mapping[int, Span], layers: list[int]) -> str:
    ordered = sorted((effects[layer] for layer in layers), key=lambda effect: effect.value)
    return ordered[0].signed if len(ordered) == 1 else f"{ordered[0].signed} to {ordered[-1].signed}"


def _named(layers: list[int]) -> str:
    return listed([str(layer) for layer in layers])


def _layers(scores: Mapping[int, Score]) -> str:
    return f"{counted(len(scores), 'layer')} ({_named(list(scores))})"


def _signed(score: Score) -> str:
    bounds = span(score)
    return bounds.signed if bounds is not None else tidy(score.value, signed=True)
