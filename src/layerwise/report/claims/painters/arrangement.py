"""Two claims about layers that all run, but not one after the other: in another order, and side by side."""

from __future__ import annotations

from layerwise.report.claims.claim import BY_NULL, CONTRADICTED, NOT_ABOVE, SUPPORTED, Claim, Published
from layerwise.report.claims.contrasts import contrasts
from layerwise.report.claims.painters.costs import SWEEP, cost
from layerwise.report.evidence import Evidence
from layerwise.report.page.wording import label, listed

ORDERS = ("reverse", "random")
LESS = {order: f"skip:{order}" for order in ORDERS}

ANY_ORDER = Published(
    "any_order",
    "Order matters less than absence",
    "The order matters somewhat: running the middle layers in reverse or in a random order costs something, but less"
    " than skipping them.",
    "arXiv 2407.09298, section 3.4, figures 6 and 7",
    "Costs are averaged over the published windows of more than one layer, and over the draws of a random order; less"
    " than 5 % of the mean of two costs is no difference. Supported: the reverse and random orders each cost more than"
    " nothing and less than skipping. Explained by the null: one of them is shown to cost what skipping costs, within"
    " 5 %, and neither more: a layer at a wrong position is then worth no more than an absent one. Contradicted: one of"
    " them costs more than skipping, or is shown to cost nothing.",
    SWEEP,
)


def any_order(evidence: Evidence) -> Claim:
    """Does the order matter, and less than that a layer runs at all?"""
    rows = contrasts(evidence, ANY_ORDER.key, *LESS.values(), *ORDERS)
    if rows is None:
        return ANY_ORDER.unmeasured()
    costs = rows.positions(*ORDERS)
    less = {order: rows.position(metric) for order, metric in LESS.items()}
    free = [order for order in ORDERS if costs[order] in NOT_ABOVE]
    worse = [order for order in ORDERS if less[order] == "below"]
    same = [order for order in ORDERS if less[order] == "within"]
    return ANY_ORDER.decided(
        f"On average over the windows reverse costs {cost(evidence, 'reverse')} nats per token, random order"
        f" {cost(evidence, 'random')} and skipping {cost(evidence, 'skip')}; relative to the mean of both, skipping is"
        f" {rows.shown(LESS['reverse'])} above reverse and {rows.shown(LESS['random'])} above random order"
        f"{rows.tokens}.",
        rows.seen(*LESS.values(), *ORDERS),
        (bool(free), CONTRADICTED, f"In {_named(free)} the layers cost nothing."),
        (bool(worse), CONTRADICTED, f"In {_named(worse)} they cost more than absent ones."),
        (bool(same), BY_NULL, f"In {_named(same)} they cost what absence does."),
        (
            {*less.values(), *costs.values()} == {"above"},
            SUPPORTED,
            "Another order costs something, and less than absence.",
        ),
        otherwise=rows.needed(*LESS.values(), *ORDERS),
    )


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
    SWEEP,
)


def parallel(evidence: Evidence) -> Claim:
    """Can the layers run in parallel, at a cost between those of reversing and of skipping them?"""
    below_skip, above_reverse = "skip:parallel", "parallel:reverse"
    rows = contrasts(evidence, PARALLEL.key, below_skip, above_reverse)
    if rows is None:
        return PARALLEL.unmeasured()
    skipped, turned = rows.position(below_skip), rows.position(above_reverse)
    return PARALLEL.decided(
        f"On average over the windows parallel costs {cost(evidence, 'parallel')} nats per token; relative to the mean"
        f" of both, skipping is {rows.shown(below_skip)} above it, and it is {rows.shown(above_reverse)} above"
        f" reverse{rows.tokens}.",
        rows.seen(below_skip, above_reverse),
        (skipped == "below", CONTRADICTED, "Layers in parallel cost more than absent ones."),
        (skipped == "within", BY_NULL, "Layers in parallel cost what absence does."),
        (turned in NOT_ABOVE, CONTRADICTED, "Layers in parallel cost no more than reversed ones."),
        (skipped == turned == "above", SUPPORTED, "It lies between reverse and absence."),
        otherwise=rows.needed(below_skip, above_reverse),
    )
