"""A claim of the LayerShuffle paper: layers of several models can be mixed at nearly no loss."""

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
    told_from,
)
from layerwise.report.data import Evidence
from layerwise.report.notation import tidy
from layerwise.report.wording import listed

LOSS, NEAR_CHANCE = 0.05, 0.05

MERGING = Published(
    "merging",
    "Lossless merging",
    "A model made of one layer each of 12 models trained for any order reaches 59.68 % in any order, where each of the"
    " 12 reaches 62.77 %; made of 12 ordinary models, in order, it reaches 1.87 %.",
    "arXiv 2407.04513v1, section 4.4, Table 2",
    "The loss is the mean accuracy of the models minus that of those merged from them. Supported: for layershuffle in"
    " any order the loss is below 5 points (3.1 were published), and for every arm trained in order, whose layers stay"
    " at their own depth, above. Explained by the null: models trained in order are merged at a loss below 5 points"
    " too, or layershuffle is within 5 points of chance and has nothing to lose. Contradicted: for layershuffle the"
    " loss is above 5 points. Each is read off a 95 % interval over models, draws and images.",
)


def merging(evidence: Evidence) -> Claim:
    """Can layers of several models be mixed without a loss that counts, and does that take training for any order?

    - supported: nothing that counts is lost, and by models trained in order something is.
    - explained by the null: models trained in order lose as little, or there is nothing to lose.
    - contradicted: something that counts is lost.
    - not resolvable: an interval holds both answers, or no models trained in order were merged.
    """
    score = contrast(evidence, MERGING.key, "loss")
    loss = interval(evidence, MERGING.key, "loss")
    rivals, skill = nulls(evidence, MERGING.key, "loss"), interval(evidence, MERGING.key, "skill")
    if score is None:
        return MERGING.unmeasured("It needs two seeds of layershuffle and of baseline, on images: layerwise merge RUN.")
    if loss is None or skill is None:
        return MERGING.claim("not resolvable", f"Merging loses {tidy(100 * score.value)} points.", TOO_FEW)
    told = listed([f"{NULLS[null]} {hundredths(of)}" for null, of in rivals.items()])
    figures = f"Merging loses {hundredths(loss)} points{f', of {told}' if told else ''}."
    power = told_from(score, LOSS, "points")
    if skill.position(NEAR_CHANCE) == "within":
        why = "Its models are near chance in any order: there is nothing to lose."
        return MERGING.claim("explained by the null", figures, why, power)
    if against(loss, LOSS) == "above":
        return MERGING.claim("contradicted", figures, "Something that counts is lost.", power)
    sides = {against(of, LOSS) for of in rivals.values()}
    if against(loss, LOSS) == "below" and "below" in sides:
        why = "Models trained in order can be merged at as little loss, at their own depth."
        return MERGING.claim("explained by the null", figures, why, power)
    if against(loss, LOSS) == "below" and skill.low > NEAR_CHANCE and sides == {"above"}:
        why = "Nothing that counts is lost, where models trained in order lose it."
        return MERGING.claim("supported", figures, why, power)
    if not sides:
        why = "No models trained in order were merged: train baseline with two seeds."
        return MERGING.claim("not resolvable", figures, why, power)
    return MERGING.claim("not resolvable", figures, f"The intervals hold both answers.{more(score, LOSS)}", power)
