"""The claim that only scaling leaves a layer working."""

from __future__ import annotations

from layerwise.report.claims.claim import CONTRAST, Claim, Published, needed, on_tokens, seen, span
from layerwise.report.data import Evidence
from layerwise.report.notation import between
from layerwise.report.wording import label, listed
from layerwise.results.rows import Score

MARGIN = 0.01

SCALING = Published(
    "scaling",
    "Only scaling survives",
    "A layer survives scaling by 0.9 (perplexity +19 %); replaced or perturbed in four other ways it costs millions of"
    " percent.",
    "arXiv 2603.19348, manipulation robustness (metric 4)",
    "Every strategy is compared with scaling at one size, a tenth of the weights' norm, by what it costs more at the"
    f" median layer; simultaneous 95 % intervals. The margin is {MARGIN:g} nats per token. Supported: each of the"
    " others costs more than scaling, by an interval above zero that reaches beyond the margin. Explained by the null:"
    " some other is shown to cost no more than the margin more, while at their largest sizes, as published, all cost"
    " more than scaling at a tenth: size, not kind. Contradicted: some other is as mild, and even the unequal"
    " comparison does not favour scaling. Anything else is not resolvable.",
)


def scaling(evidence: Evidence) -> Claim:
    """Of all ways to change a layer's weights, is scaling the mildest at one size?

    - supported (true): every rival's equal contrast is above zero, and not within the margin.
    - explained by the null: a rival's equal contrast is within the margin or below zero, and every unequal one above.
    - contradicted (false): a rival's equal contrast is within or below, and a rival's unequal one is too.
    - not resolvable (underpowered): anything else.
    """
    found = evidence.diagnosis
    equal, unequal = (
        {metric.partition(":")[2]: score for metric in sorted(found.metrics(CONTRAST, f"{kind}:"))
         if (score := found.score(CONTRAST, SCALING.key, metric)) is not None}
        for kind in ("equal", "unequal")
    )  # fmt: skip
    if not equal:
        return SCALING.unmeasured("It needs the part manipulation: scaling and another strategy at one relative size.")
    figures = f"Beyond scaling by 0.9, at the same ‖ΔW‖/‖W‖ = 0.1 and the median layer: {_costs(equal)}."
    figures = f"{figures[:-1]} nats per token{on_tokens(equal.values())}; at their largest sizes {_costs(unequal)}."
    positions = {name: _position(score) for name, score in equal.items()}
    naive = [_position(score) for score in unequal.values()]
    power = seen(max(equal.values(), key=lambda score: score.resolution or 0.0), MARGIN, "nats beyond scaling")
    mild = [label(name) for name, position in positions.items() if position in ("within", "below")]
    if all(position == "above" for position in positions.values()):
        return SCALING.claim("supported", figures, "At equal size scaling costs less than each of the others.", power)
    if mild and naive and all(position == "above" for position in naive):
        why = f"At equal size {listed(mild)} cost no more; the published comparison gave the others larger changes."
        return SCALING.claim("explained by the null", figures, why, power)
    if mild and any(position in ("within", "below") for position in naive):
        return SCALING.claim("contradicted", figures, f"As mild as scaling at equal size: {listed(mild)}.", power)
    why = "At equal size the strategies are not told apart."
    worst = max(equal.values(), key=lambda score: score.resolution or 0.0)
    return SCALING.claim("not resolvable", figures, _with_need(why, needed(worst, MARGIN)), power)


def _position(score: Score) -> str:
    bounds = span(score)
    return "open" if bounds is None else bounds.position(MARGIN)


def _costs(rows: dict[str, Score]) -> str:
    return listed([f"{label(name)} {between(row.value, row.low, row.high, signed=True)}" for name, row in rows.items()])


def _with_need(why: str, need: str) -> str:
    return f"{why[:-1]}; {need}." if need else why
