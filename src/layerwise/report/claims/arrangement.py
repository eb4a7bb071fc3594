"""Two claims about layers that all run, but not one after the other: in another order, and side by side."""

from __future__ import annotations

from layerwise.report.claims.absence import SWEEP
from layerwise.report.claims.claim import Claim, Published
from layerwise.report.claims.contrasts import contrasts, cost
from layerwise.report.data import Evidence
from layerwise.report.wording import label, listed

ORDERS = ("reverse", "random")
LESS = tuple(f"skip:{order}" for order in ORDERS)

ANY_ORDER = Published(
    "any_order",
    "Order matters less than absence",
    "The order matters somewhat: running the middle layers in reverse or in a random order costs something, but less"
    " than skipping them.",
    "arXiv 2407.09298, section 3.4, figures 6 and 7",
    "Costs are averaged over the published windows of more than one layer, and over the draws of a random order; less"
    " than 5 % of the mean of two costs is no difference. Supported: the reverse and random orders each cost more than"
    " nothing and less than skipping. Explained by the null: one of them is shown to cost what skipping costs, within"
    " 5 %, and neither more: a layer at a wrong place is then worth no more than an absent one. Contradicted: one of"
    " them costs more than skipping, or is shown to cost nothing.",
)


def any_order(evidence: Evidence) -> Claim:
    """Does the order matter, and less than that a layer runs at all?

    - supported: both orders cost more than nothing and less than skipping.
    - explained by the null: an order's cost is within the margin of that of skipping, and no order costs more.
    - contradicted: an order costs more than skipping, or nothing.
    - not resolvable: anything else.
    """
    found = contrasts(evidence, ANY_ORDER.key, *LESS, *ORDERS)
    if found is None:
        return ANY_ORDER.unmeasured(SWEEP)
    figures = (
        f"On average over the windows reverse costs {cost(evidence, 'reverse')} nats per token, random order"
        f" {cost(evidence, 'random')} and skipping {cost(evidence, 'skip')}; relative to the mean of both, skipping is"
        f" {found.shown(LESS[0])} above reverse and {found.shown(LESS[1])} above random order{found.tokens}."
    )
    power = found.seen(*LESS, *ORDERS)
    less, costs = found.places(*LESS), found.places(*ORDERS)
    free = [order for order in ORDERS if costs[order] in ("within", "below")]
    worse = [order for order, metric in zip(ORDERS, LESS, strict=True) if less[metric] == "below"]
    same = [order for order, metric in zip(ORDERS, LESS, strict=True) if less[metric] == "within"]
    if free:
        return ANY_ORDER.claim("contradicted", figures, f"In {_named(free)} the layers cost nothing.", power)
    if worse:
        return ANY_ORDER.claim("contradicted", figures, f"In {_named(worse)} they cost more than absent ones.", power)
    if same:
        why = f"In {_named(same)} they cost what absence does."
        return ANY_ORDER.claim("explained by the null", figures, why, power)
    if all(place == "above" for place in (*less.values(), *costs.values())):
        return ANY_ORDER.claim("supported", figures, "Another order costs something, and less than absence.", power)
    return ANY_ORDER.claim("not resolvable", figures, found.needed(*LESS, *ORDERS), power)


def _named(orders: list[str]) -> str:
    return listed([label(order) for order in orders])


PARALLEL = Published(
    "parallel",
    "Layers can run in parallel",
    "Running the middle layers side by side and averaging them costs less than skipping them, and more than reversing"
    " them.",
    "arXiv 2407.09298, section 3.5, figure 8",
    "Costs are averaged over the published windows of more than one layer; less than 5 % of the mean of two costs is no"
    " difference. Supported: parallel costs less than skipping and more than reverse. Explained by the null: parallel"
    " costs what skipping costs, within 5 %: the mean applies so little of each layer that the layers might be absent."
    " Contradicted: parallel costs more than skipping, or is shown to cost no more than reverse.",
)


def parallel(evidence: Evidence) -> Claim:
    """Can the layers run in parallel, at a cost between those of reversing and of skipping them?

    - supported: less than skipping, and more than reversing.
    - explained by the null: within the margin of skipping: a mean that does nothing would cost that.
    - contradicted: more than skipping; or within the margin of reversing, or less than it.
    - not resolvable: anything else.
    """
    below_skip, above_reverse = "skip:parallel", "parallel:reverse"
    found = contrasts(evidence, PARALLEL.key, below_skip, above_reverse)
    if found is None:
        return PARALLEL.unmeasured(SWEEP)
    figures = (
        f"On average over the windows parallel costs {cost(evidence, 'parallel')} nats per token; relative to the mean"
        f" of both, skipping is {found.shown(below_skip)} above it, and it is {found.shown(above_reverse)} above"
        f" reverse{found.tokens}."
    )
    power = found.seen(below_skip, above_reverse)
    skipped, reversed_ = found.place(below_skip), found.place(above_reverse)
    if skipped == "below":
        return PARALLEL.claim("contradicted", figures, "Layers in parallel cost more than absent ones.", power)
    if skipped == "within":
        return PARALLEL.claim("explained by the null", figures, "Layers in parallel cost what absence does.", power)
    if reversed_ in ("within", "below"):
        return PARALLEL.claim("contradicted", figures, "Layers in parallel cost no more than reversed ones.", power)
    if skipped == reversed_ == "above":
        return PARALLEL.claim("supported", figures, "It lies between reverse and absence.", power)
    return PARALLEL.claim("not resolvable", figures, found.needed(below_skip, above_reverse), power)
