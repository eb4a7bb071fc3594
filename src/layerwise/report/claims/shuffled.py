"""Three claims of the LayerShuffle paper about accuracy: what any order costs, who collapses, who can be pruned."""

from __future__ import annotations

from layerwise.report.claims.claim import Claim, Published
from layerwise.report.claims.trained import (
    NULLS,
    TOO_FEW,
    against,
    contrast,
    hundredths,
    interval,
    more,
    nulls,
    resolved,
    told_from,
)
from layerwise.report.data import Evidence
from layerwise.report.notation import tidy
from layerwise.report.wording import listed

COST, GAIN = 0.25, 0.05
NEAR_CHANCE = 0.05
SPARED = 0.1
NEEDS = "It needs the arms baseline and layershuffle, on images: layerwise robustness RUN."

TRAINED_ORDER = Published(
    "trained_order",
    "Any order, for 20 points",
    "Trained for any order, a ViT keeps 62.77 % in an order drawn anew for every batch, about 20 points below the"
    " 82.61 % of the ordinary model in order; the ordinary model keeps 0.13 %.",
    "arXiv 2407.04513v1, Table 1",
    "The cost is the accuracy of the baseline in order minus that of layershuffle in any order. Supported: the cost is"
    " below 25 points, and in any order layershuffle is above every arm trained in order, by more than counts (5"
    " points). Explained by the null: the cost is below 25 points, but an arm trained in order keeps as much in any"
    " order, within 5 points. Contradicted: the cost is above 25 points, or an arm trained in order keeps more. Each is"
    " read off a 95 % interval over seeds and images.",
)


def trained_order(evidence: Evidence) -> Claim:
    """Can a model be trained for any order, at a cost of about 20 points?

    - supported: it costs less than 25 points, and training in order does not give it.
    - explained by the null: it costs less than 25 points, and training in order gives it too.
    - contradicted: it costs more, or training in order gives more.
    - not resolvable: an interval holds both answers.
    """
    score = contrast(evidence, TRAINED_ORDER.key, "cost")
    cost = interval(evidence, TRAINED_ORDER.key, "cost")
    gains = nulls(evidence, TRAINED_ORDER.key, "gain_above")
    if score is None:
        return TRAINED_ORDER.unmeasured(NEEDS)
    if cost is None or not gains:
        return TRAINED_ORDER.claim("not resolvable", f"Any order costs {tidy(100 * score.value)} points.", TOO_FEW)
    kept = listed([f"{hundredths(gain)} points above {NULLS[null]}" for null, gain in gains.items()])
    figures = f"Any order costs {hundredths(cost)} points; in any order layershuffle is {kept}."
    power = told_from(score, COST, "points")
    places = {null: gain.position(GAIN) for null, gain in gains.items()}
    if against(cost, COST) == "above":
        return TRAINED_ORDER.claim("contradicted", figures, "More is lost than was published.", power)
    if "below" in places.values():
        return TRAINED_ORDER.claim("contradicted", figures, "An arm trained in order keeps more in any order.", power)
    if against(cost, COST) == "below" and "within" in places.values():
        return TRAINED_ORDER.claim(
            "explained by the null", figures, "Training in order gives as much in any order.", power
        )
    if against(cost, COST) == "below" and set(places.values()) == {"above"}:
        why = "The cost is no more than was published, and training in order does not give it."
        return TRAINED_ORDER.claim("supported", figures, why, power)
    return TRAINED_ORDER.claim("not resolvable", figures, f"The intervals hold both answers.{more(score, GAIN)}", power)


COLLAPSE = Published(
    "collapse",
    "Ordinary models collapse",
    "In an order drawn anew for every batch, a model that was trained in order falls from 82.61 % to 0.13 %: chance.",
    "arXiv 2407.04513v1, Table 1",
    "Read from the accuracy of the baseline above that of the commonest label. Supported: in any order it is less than"
    " 5 points above chance, and in order more than counts (5 points). Explained by the null: in order it is within 5"
    " points of chance too, so that there is nothing to lose. Contradicted: in any order it is more than 5 points above"
    " chance. Each is read off a 95 % interval over seeds and images.",
)


def collapse(evidence: Evidence) -> Claim:
    """Does a model that was trained in order know nothing in any other?

    - supported: it is near chance in any order, and not in order.
    - explained by the null: it is near chance in order too.
    - contradicted: in any order it is above chance by more than counts.
    - not resolvable: an interval holds both answers.
    """
    score = contrast(evidence, COLLAPSE.key, "any_order")
    free = interval(evidence, COLLAPSE.key, "any_order")
    ordered = interval(evidence, COLLAPSE.key, "in_order")
    if score is None:
        return COLLAPSE.unmeasured("It needs the arm baseline, on images: layerwise robustness RUN.")
    if free is None or ordered is None:
        shown = f"In any order the baseline is {tidy(100 * score.value)} points above chance."
        return COLLAPSE.claim("not resolvable", shown, TOO_FEW)
    figures = f"The baseline is {hundredths(free)} points above chance in any order, {hundredths(ordered)} in order."
    power = told_from(score, NEAR_CHANCE, "points above chance")
    if ordered.position(NEAR_CHANCE) == "within":
        why = "In order it is no better than chance either: there is nothing to lose."
        return COLLAPSE.claim("explained by the null", figures, why, power)
    if against(free, NEAR_CHANCE) == "above":
        return COLLAPSE.claim("contradicted", figures, "In any order it still knows more than chance gives.", power)
    if against(free, NEAR_CHANCE) == "below" and against(ordered, NEAR_CHANCE) == "above":
        return COLLAPSE.claim("supported", figures, "What it knows in order is lost in any other.", power)
    return COLLAPSE.claim("not resolvable", figures, f"The intervals hold both answers.{more(score, GAIN)}", power)


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
    " less. Each is read off a 95 % interval over seeds and images.",
)


def pruning(evidence: Evidence) -> Claim:
    """Does a model that was trained for any order lose its layers more gracefully than one that was not?

    - supported: it declines more slowly than every arm that was trained in order.
    - explained by the null: an arm that was trained in order declines as slowly.
    - contradicted: an arm that was trained in order declines more slowly.
    - not resolvable: an interval holds both answers.
    """
    score = contrast(evidence, PRUNING.key, "spared_above@baseline")
    spared = nulls(evidence, PRUNING.key, "spared_above")
    lost, others = interval(evidence, PRUNING.key, "lost"), nulls(evidence, PRUNING.key, "lost")
    if score is None:
        return PRUNING.unmeasured(f"{NEEDS} Both must be above chance in order.")
    if lost is None or not spared:
        shown = f"With half of the layers layershuffle loses {tidy(100 * score.value)} % less than the baseline."
        return PRUNING.claim("not resolvable", shown, TOO_FEW)
    rivals = listed([f"{NULLS[null]} {hundredths(of)} %" for null, of in others.items()])
    figures = f"With half of the layers layershuffle loses {hundredths(lost)} % of its accuracy above chance, {rivals}."
    power = resolved(score, SPARED, "%")
    places = {of.position(SPARED) for of in spared.values()}
    if "below" in places:
        return PRUNING.claim("contradicted", figures, "An arm trained in order declines more slowly.", power)
    if "within" in places:
        return PRUNING.claim("explained by the null", figures, "Training in order declines as slowly.", power)
    if places == {"above"}:
        return PRUNING.claim("supported", figures, "It declines more slowly than what was trained in order.", power)
    return PRUNING.claim("not resolvable", figures, f"The intervals hold both answers.{more(score, SPARED)}", power)
