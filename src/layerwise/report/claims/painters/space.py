"""The claim that the middle layers share a space that the first and the last ones do not share."""

from __future__ import annotations

from layerwise.report.claims.claim import BY_NULL, CONTRADICTED, NOT_ABOVE, SUPPORTED, Claim, Published
from layerwise.report.claims.contrasts import contrasts
from layerwise.report.evidence import Evidence
from layerwise.report.page.wording import listed

MARGIN = 0.02
SIDES = ("beginning", "ending")

SAME_SPACE = Published(
    "same_space",
    "Middle layers share a space",
    "The hidden states of the middle layers are alike, and unlike those of the first and the last layers: three zones.",
    "arXiv 2407.09298, section 3.1, figure 3",
    "The ends are an eighth of the depth each, and the middle is what lies between. As published: the mean cosine"
    " within the middle, minus that between the middle and the ends. States far apart are less alike in any model, so"
    " the middle is also compared with each end at equal distance between the two states, without sink tokens, and less"
    " what tokens of other documents share. Differences inside ±0.02 are none. Supported: at equal distance the middle"
    " is more alike than it is with either end. Explained by the null: the published difference is there, but at equal"
    " distance the middle is shown to be no more alike than it is with one of the ends. Contradicted: not even the"
    " published difference is there. Every interval is over documents.",
    "It needs the hidden states of 8 layers and more on several documents: layerwise sweep MODEL --overwrite.",
)


def same_space(evidence: Evidence) -> Claim:
    """Do the middle layers share a space of their own, or do the states drift from layer to layer?"""
    rows = contrasts(evidence, SAME_SPACE.key, "published", *SIDES)
    if rows is None:
        return SAME_SPACE.unmeasured()
    published, sides = rows.position("published", MARGIN), rows.positions(*SIDES, margin=MARGIN)
    alike = [side for side in SIDES if sides[side] in NOT_ABOVE]
    drift = f"At equal distance the middle is no more alike than it is with the {listed(alike)}."
    return SAME_SPACE.decided(
        f"The cosine within the middle is {rows.shown('published')} above that with the ends; at equal distance,"
        f" without sinks and less that of other documents, {rows.shown('beginning')} above that with the beginning and"
        f" {rows.shown('ending')} above that with the ending{rows.tokens}.",
        rows.seen(*SIDES, margin=MARGIN, unit="of cosine at both ends"),
        (
            published in NOT_ABOVE,
            CONTRADICTED,
            "The states of the middle are no more alike than they are with those of the ends.",
        ),
        (published == "above" and bool(alike), BY_NULL, drift),
        (
            {published, *sides.values()} == {"above"},
            SUPPORTED,
            "At equal distance the middle is more alike than it is with either end.",
        ),
        otherwise=rows.needed("published", *SIDES, margin=MARGIN),
    )
