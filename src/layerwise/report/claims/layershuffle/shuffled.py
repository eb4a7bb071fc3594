"""Three claims of the LayerShuffle paper about accuracy: what random order costs, who collapses, who can be pruned."""

from __future__ import annotations

from layerwise.report.claims.claim import BY_NULL, CONTRADICTED, SUPPORTED, Claim, Published
from layerwise.report.claims.contrasts import NULLS, contrasts
from layerwise.report.claims.layershuffle.shares import (
    NEAR_CHANCE,
    NOT_LEARNED,
    TOO_FEW,
    not_above_chance,
    points,
    skill_in_order,
    undecided,
)
from layerwise.report.claims.power import beside_bound, seen
from layerwise.report.evidence import Evidence
from layerwise.report.page.wording import listed

COST, GAIN = 0.25, 0.05
SPARED = 0.1
NEEDS = "It needs the arms baseline and layershuffle, on images: layerwise robustness RUN."

TRAINED_ORDER = Published(
    "trained_order",
    "Random order, for 20 points",
    "Trained for any order, a ViT keeps 62.77 % in an order drawn anew for every batch, about 20 points below the"
    " 82.61 % of the ordinary model in order; the ordinary model keeps 0.13 %.",
    "arXiv 2407.04513v1, Table 1",
    "The cost is the accuracy of the baseline in order minus that of layershuffle in random order. Supported: the cost"
    " is below 25 points, and in random order layershuffle is above every arm trained in order, by more than counts (5"
    " points). Explained by the null: the cost is below 25 points, but an arm trained in order keeps as much in random"
    " order, within 5 points. Contradicted: the cost is above 25 points, or an arm trained in order keeps more. Each"
    " is read off a 95 % interval over seeds and images." + NOT_LEARNED.format("the baseline in order"),
    NEEDS,
)


def trained_order(evidence: Evidence) -> Claim:
    """Can a model be trained for any order, at a cost of about 20 points?"""
    rows = contrasts(evidence, TRAINED_ORDER.key, "cost")
    if rows is None:
        return TRAINED_ORDER.unmeasured()
    cost, gains = rows.span("cost"), rows.nulls("gain_above")
    if cost is None or not gains:
        return TRAINED_ORDER.undecided(f"Random order costs {rows.points('cost')} points.", TOO_FEW)
    kept = listed([f"{points(gain)} points above {NULLS[null]}" for null, gain in gains.items()])
    side, above = cost.against(COST), {gain.position(GAIN) for gain in gains.values()}
    cheap = "The cost is no more than was published, and training in order does not give it."
    return TRAINED_ORDER.decided(
        f"Random order costs {points(cost)} points; in random order layershuffle is {kept}.",
        beside_bound(rows["cost"], COST, "points"),
        not_above_chance(skill_in_order(evidence), "The baseline in order"),
        (side == "above", CONTRADICTED, "More is lost than was published."),
        ("below" in above, CONTRADICTED, "An arm trained in order keeps more in random order."),
        (side == "below" and "within" in above, BY_NULL, "Training in order gives as much in random order."),
        (side == "below" and above == {"above"}, SUPPORTED, cheap),
        otherwise=undecided(rows["cost"], GAIN),
    )


COLLAPSE = Published(
    "collapse",
    "Ordinary models collapse",
    "In an order drawn anew for every batch, a model that was trained in order falls from 82.61 % to 0.13 %: chance.",
    "arXiv 2407.04513v1, Table 1",
    "Read from the accuracy of the baseline above that of the commonest label. Supported: in random order it is less"
    " than 5 points above chance. Contradicted: in random order it is more than 5 points above chance. Each is read off"
    " a 95 % interval over seeds and images." + NOT_LEARNED.format("the baseline in order"),
    "It needs the arm baseline, on images: layerwise robustness RUN.",
)


def collapse(evidence: Evidence) -> Claim:
    """Does a model that was trained in order know nothing in any other?"""
    rows = contrasts(evidence, COLLAPSE.key, "random_order")
    if rows is None:
        return COLLAPSE.unmeasured()
    free, ordered = rows.span("random_order"), rows.span("in_order")
    if free is None or ordered is None:
        return COLLAPSE.undecided(
            f"In random order the baseline is {rows.points('random_order')} points above chance.", TOO_FEW
        )
    side = free.against(NEAR_CHANCE)
    return COLLAPSE.decided(
        f"The baseline is {points(free)} points above chance in random order, {points(ordered)} in order.",
        beside_bound(rows["random_order"], NEAR_CHANCE, "points above chance"),
        not_above_chance(ordered, "The baseline in order"),
        (side == "above", CONTRADICTED, "In random order it still knows more than chance gives."),
        (side == "below", SUPPORTED, "What it knows in order is lost in any other."),
        otherwise=undecided(rows["random_order"], GAIN),
    )


PRUNING = Published(
    "pruning",
    "Graceful pruning",
    "Without further training, a model trained for any order loses its accuracy gradually as layers are left out: with"
    " 9 of 12 layers in order it keeps 70 to 80 %, with 3 about 18 %.",
    "arXiv 2407.04513v1, Fig. 1",
    "The decline is the slope of accuracy over the number of layers left out, evenly spaced and in order, up to half of"
    " them; it is given as the share of the accuracy above chance that goes with half of the layers. Supported:"
    " layershuffle loses less than every arm trained in order, by more than counts (10 % of that accuracy). Explained"
    " by the null: an arm trained in order loses as much, within 10 %. Contradicted: an arm trained in order loses"
    " less. Each is read off a 95 % interval over seeds and images." + NOT_LEARNED.format("the baseline in order"),
    f"{NEEDS} Both must be above chance in order.",
)


def pruning(evidence: Evidence) -> Claim:
    """Does a model trained for any order decline more slowly as layers go than one trained in order?"""
    spared_above = "spared_above@baseline"
    rows = contrasts(evidence, PRUNING.key, spared_above)
    if rows is None:
        return PRUNING.unmeasured()
    spared, lost = rows.nulls("spared_above"), rows.span("lost")
    if lost is None or not spared:
        return PRUNING.undecided(
            f"With half of the layers layershuffle loses {rows.points(spared_above)} % less than the baseline.", TOO_FEW
        )
    rivals = listed([f"{NULLS[null]} {points(share)} %" for null, share in rows.nulls("lost").items()])
    above = {share.position(SPARED) for share in spared.values()}
    return PRUNING.decided(
        f"With half of the layers layershuffle loses {points(lost)} % of its accuracy above chance, {rivals}.",
        seen(rows[spared_above], SPARED, "%", scale=100),
        not_above_chance(skill_in_order(evidence), "The baseline in order"),
        ("below" in above, CONTRADICTED, "An arm trained in order declines more slowly."),
        ("within" in above, BY_NULL, "Training in order declines as slowly."),
        (above == {"above"}, SUPPORTED, "It declines more slowly than what was trained in order."),
        otherwise=undecided(rows[spared_above], SPARED),
    )
