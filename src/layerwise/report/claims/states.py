"""The claim that middle layers are alike: that they change the hidden state less than the first and last ones do."""

from __future__ import annotations

from collections.abc import Mapping

from layerwise.report.claims.claim import Claim, Published, Span, middlemost, on_tokens, span
from layerwise.report.data import Evidence
from layerwise.report.diagnosis import NULL
from layerwise.results.rows import Score

FEWEST_LAYERS = 8  # below this a quarter of the depth is a single layer
METRIC = "block_influence"


MIDDLE = Published(
    "middle",
    "Middle layers are alike",
    "Middle layers share one space: each changes the state little.",
    "arXiv 2407.09298, section 3.1, figure 3",
    "",
)


def middle(evidence: Evidence) -> Claim:
    """Do the middle layers change the state less than those at the ends?

    The middle is the half of the layers from a quarter to three quarters of the depth. The Block Influence, one minus
    the cosine of a layer's input and output, is that of the median layer there and elsewhere: a first layer that turns
    the embedding around says nothing of zones, and would make a mean say so.

    - supported: the middle's median is below the rest's, told apart from it, and the gap is greater than that of the
      randomly initialised twin, told apart from it too.
    - explained by the null: the middle's is below, but the twin's gap is as great: it comes with depth, not training.
    - contradicted: the middle's median is above the rest's, told apart from it.
    - not resolvable: the two are not told apart, or no twin was measured.
    """
    found = evidence.diagnosis
    rows = found.layers("proxies", METRIC)
    bounds = _spans(rows)
    if found.depth < FEWEST_LAYERS or len(bounds) < found.depth:
        why = f"It needs the Block Influence of every layer, with intervals, of at least {FEWEST_LAYERS} layers."
        return MIDDLE.unmeasured(why)
    inner, outer = _halves(bounds, found.depth)
    tokens = on_tokens(rows.values())
    figures = f"Block Influence is {inner} in the middle and {outer} elsewhere, at the median layer{tokens}."
    if inner.above(outer):
        return MIDDLE.claim("contradicted", figures, "The middle layers change the state more, not less.")
    if not outer.above(inner):
        return MIDDLE.claim("not resolvable", figures, "The two medians are not told apart.")
    twin = _spans(found.layers("proxies", f"{METRIC}{NULL}random_twin"))
    if len(twin) < found.depth:
        why = "Without a random twin nothing says whether training or depth made the difference."
        return MIDDLE.claim("not resolvable", figures, why)
    twin_inner, twin_outer = _halves(twin, found.depth)
    figures = f"{figures[:-1]}; in a random twin {twin_inner} and {twin_outer}."
    if _gap(outer, inner).above(_gap(twin_outer, twin_inner)):
        return MIDDLE.claim("supported", figures, "The gap is greater than that of an untrained model.")
    return MIDDLE.claim("explained by the null", figures, "An untrained model of this shape shows the gap too.")


def _spans(rows: Mapping[int, Score]) -> dict[int, Span]:
    return {layer: bounds for layer, score in rows.items() if (bounds := span(score)) is not None}


def _halves(bounds: Mapping[int, Span], depth: int) -> tuple[Span, Span]:
    inside = range(depth // 4, depth - depth // 4)
    return (
        middlemost([bounds[layer] for layer in bounds if layer in inside]),
        middlemost([bounds[layer] for layer in bounds if layer not in inside]),
    )


def _gap(more: Span, less: Span) -> Span:
    return Span(more.value - less.value, more.low - less.high, more.high - less.low)
