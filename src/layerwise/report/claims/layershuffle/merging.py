"""A claim of the LayerShuffle paper: layers of several models can be mixed at nearly no loss."""

from __future__ import annotations

from layerwise.report.claims.claim import BY_NULL, CONTRADICTED, SUPPORTED, Claim, Published
from layerwise.report.claims.contrasts import NULLS, contrasts
from layerwise.report.claims.layershuffle.shares import NOT_LEARNED, TOO_FEW, not_above_chance, points, undecided
from layerwise.report.claims.power import beside_bound
from layerwise.report.evidence import Evidence
from layerwise.report.page.wording import listed

LOSS = 0.05

MERGING = Published(
    "merging",
    "Lossless merging",
    "A model made of one layer each of 12 models trained for any order reaches 59.68 % in random order, where each of"
    " the 12 reaches 62.77 %; made of 12 ordinary models, in order, it reaches 1.87 %.",
    "arXiv 2407.04513v1, section 4.4, Table 2",
    "The loss is the mean accuracy of the models minus that of those merged from them. Supported: for layershuffle in"
    " random order the loss is below 5 points (3.1 were published), and for every arm trained in order, whose layers"
    " stay at their own depth, above. Explained by the null: models trained in order are merged at a loss below 5"
    " points too. Contradicted: for layershuffle the loss is above 5 points. Each is read off a 95 % interval over"
    " models, draws and images." + NOT_LEARNED.format("layershuffle in random order, or a null in order,"),
    "It needs two seeds of layershuffle and of baseline, on images: layerwise merge RUN.",
)


def merging(evidence: Evidence) -> Claim:
    """Can layers of several models be mixed without a loss that counts, and does that take training for any order?"""
    rows = contrasts(evidence, MERGING.key, "loss")
    if rows is None:
        return MERGING.unmeasured()
    loss, skill, rivals = rows.span("loss"), rows.span("skill"), rows.nulls("loss")
    if loss is None or skill is None:
        return MERGING.undecided(f"Merging loses {rows.points('loss')} points.", TOO_FEW)
    beside = listed([f"{NULLS[null]} {points(share)}" for null, share in rivals.items()])
    side, sides = loss.against(LOSS), {share.against(LOSS) for share in rivals.values()}
    unskilled = min((skill, *rows.nulls("skill").values()), key=lambda each: each.low)
    return MERGING.decided(
        f"Merging loses {points(loss)} points{f', of {beside}' if beside else ''}.",
        beside_bound(rows["loss"], LOSS, "points"),
        not_above_chance(unskilled, "A model that is merged"),
        (side == "above", CONTRADICTED, "Something that counts is lost."),
        (
            side == "below" and "below" in sides,
            BY_NULL,
            "Models trained in order can be merged at as little loss, at their own depth.",
        ),
        (
            side == "below" and sides == {"above"},
            SUPPORTED,
            "Nothing that counts is lost, where models trained in order lose it.",
        ),
        otherwise=undecided(rows["loss"], LOSS)
        if sides
        else "No models trained in order were merged: train baseline with two seeds.",
    )
