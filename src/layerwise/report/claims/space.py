"""The claim that the middle layers share a space that the first and the last ones do not share."""

from __future__ import annotations

from layerwise.report.claims.claim import Claim, Published
from layerwise.report.claims.contrasts import contrasts
from layerwise.report.data import Evidence
from layerwise.report.wording import listed

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
)


def same_space(evidence: Evidence) -> Claim:
    """Do the middle layers share a space of their own?

    - supported: at equal distance the middle is more alike than with the beginning and than with the ending.
    - explained by the null: the published contrast is there, but one of those two lies within the margin or below: the
      states drift from layer to layer, and the picture of zones is that of distance, sinks and the cone of all states.
    - contradicted: the published contrast lies within the margin or below.
    - not resolvable: anything else.
    """
    found = contrasts(evidence, SAME_SPACE.key, "published", *SIDES)
    if found is None:
        why = "It needs the hidden states of 8 layers and more on several documents: layerwise sweep MODEL --fresh."
        return SAME_SPACE.unmeasured(why)
    figures = (
        f"The cosine within the middle is {found.shown('published')} above that with the ends; at equal distance,"
        f" without sinks and less that of other documents, {found.shown('beginning')} above that with the beginning and"
        f" {found.shown('ending')} above that with the ending{found.tokens}."
    )
    power = found.seen(*SIDES, margin=MARGIN, unit="of cosine at both ends")
    published, sides = found.place("published", MARGIN), found.places(*SIDES, margin=MARGIN)
    borderless = [side for side in SIDES if sides[side] in ("within", "below")]
    if published in ("within", "below"):
        why = "The states of the middle are no more alike than they are with those of the ends."
        return SAME_SPACE.claim("contradicted", figures, why, power)
    if published == "above" and borderless:
        why = f"At equal distance the middle is no more alike than it is with the {listed(borderless)}."
        return SAME_SPACE.claim("explained by the null", figures, why, power)
    if all(place == "above" for place in (published, *sides.values())):
        why = "At equal distance the middle is more alike than it is with either end."
        return SAME_SPACE.claim("supported", figures, why, power)
    return SAME_SPACE.claim("not resolvable", figures, found.needed("published", *SIDES, margin=MARGIN), power)
