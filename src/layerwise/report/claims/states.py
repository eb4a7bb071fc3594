"""The claim that middle layers are alike: that they change the hidden state less than the first and last ones do."""

from __future__ import annotations

import math

from layerwise.report.claims.claim import CONTRAST, Claim, Published, Span, needed, on_tokens, span
from layerwise.report.data import Evidence
from layerwise.report.notation import tidy
from layerwise.results.rows import Score

MARGIN = math.log(1.25)

MIDDLE = Published(
    "middle",
    "Middle layers are alike",
    "Middle layers share one space: each changes the state little.",
    "arXiv 2407.09298, section 3.1, figure 3",
    "The contrast is the ratio of the median Block Influence in the middle half of the layers to that of the others, by"
    " the same ratio of at least five untrained twins. Supported: the model's ratio lies below 1, and below its twins'."
    " Explained by the null: it lies below 1, but by its twins' it lies inside 1/1.25 to 1.25, or above 1: that comes"
    " with the architecture. Contradicted: it lies above 1, or inside 1/1.25 to 1.25.",
)


def middle(evidence: Evidence) -> Claim:
    """Do the middle layers change the state less than those at the ends, and less than an untrained model's do?

    Read from the contrasts of `layerwise.measure.contrasts.states`, in logarithms.

    - supported: the middle changes it less, and more so than that of untrained twins.
    - explained by the null: it changes it less, and that of the twins is shown to do so as much.
    - contradicted: it changes it as much, within the margin, or more.
    - not resolvable: anything else, and where no twin was measured.
    """
    found = evidence.diagnosis
    own = found.score(CONTRAST, MIDDLE.key, "log_ratio")
    ratio = span(own)
    if own is None or ratio is None:
        return MIDDLE.unmeasured(
            "It needs the Block Influence of at least 8 layers, on text enough for an interval: layerwise diagnose."
        )
    beside = found.score(CONTRAST, MIDDLE.key, "beyond_twins")
    beyond = span(beside)
    figures = (
        f"A typical middle layer turns the state {_factor(ratio)} times as far as another{on_tokens([own])}"
        f"{'' if beyond is None else f'; by that of untrained twins {_factor(beyond)}'}."
    )
    position = ratio.position(MARGIN)
    if position in ("within", "above"):
        return MIDDLE.claim("contradicted", figures, "The middle layers change the state no less.", _power(own))
    if position == "open":
        return MIDDLE.claim("not resolvable", figures, _open(own, "The middle is not told apart"), _power(own))
    if beside is None or beyond is None:
        why = "Without untrained twins nothing says whether training or the architecture made the difference."
        return MIDDLE.claim("not resolvable", figures, why)
    position = beyond.position(MARGIN)
    if position == "below":
        return MIDDLE.claim("supported", figures, "Untrained models of this shape do not do that.", _power(beside))
    if position in ("within", "above"):
        why = "Untrained models of this shape do the same."
        return MIDDLE.claim("explained by the null", figures, why, _power(beside))
    return MIDDLE.claim("not resolvable", figures, _open(beside, "The twins are not told apart"), _power(beside))


def _factor(logs: Span) -> str:
    low, value, high = (tidy(math.exp(bound)) for bound in (logs.low, logs.value, logs.high))
    return f"{value} [{low}, {high}]"


def _open(row: Score, told: str) -> str:
    more = needed(row, MARGIN)
    return f"{told}{f'; {more}' if more else ''}."


def _power(row: Score) -> str:
    if row.resolution is None:
        return ""
    return f"Of 100 such runs 80 would see a factor of {tidy(math.exp(max(row.resolution, MARGIN)))}."
