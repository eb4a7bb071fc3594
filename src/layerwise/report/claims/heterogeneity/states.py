"""The claim that middle layers are alike: that they change the hidden state less than the first and last ones do."""

from __future__ import annotations

import math

from layerwise.report.claims.claim import BY_NULL, CONTRADICTED, SUPPORTED, Claim, Published, Span
from layerwise.report.claims.contrasts import contrasts
from layerwise.report.claims.power import needed, on_tokens
from layerwise.report.evidence import Evidence
from layerwise.report.page.number_format import tidy
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
    "It needs the Block Influence of at least 8 layers, on text enough for an interval: layerwise diagnose.",
)


def middle(evidence: Evidence) -> Claim:
    """Do the middle layers change the state less than those at the ends, and less than an untrained model's do?

    The contrasts are logarithms.
    """
    rows = contrasts(evidence, MIDDLE.key, "log_ratio")
    ratio = rows.span("log_ratio") if rows else None
    if rows is None or ratio is None:
        return MIDDLE.unmeasured()
    own, beyond = rows["log_ratio"], rows.span("beyond_twins")
    twins = "" if beyond is None else f"; by that of untrained twins {_factor(beyond)}"
    figures = (
        f"A typical middle layer turns the state {_factor(ratio)} times as far as another{on_tokens([own])}{twins}."
    )
    position = ratio.position(MARGIN)
    if position != "below":
        return MIDDLE.decided(
            figures,
            _power(own),
            (position != "open", CONTRADICTED, "The middle layers change the state no less."),
            otherwise=f"The middle is not distinguished{needed(own, MARGIN)}.",
        )
    if beyond is None:
        why = "Without untrained twins nothing says whether training or the architecture made the difference."
        return MIDDLE.undecided(figures, why)
    return MIDDLE.decided(
        figures,
        _power(rows["beyond_twins"]),
        (beyond.position(MARGIN) == "below", SUPPORTED, "Untrained models of this shape do not do that."),
        (beyond.position(MARGIN) in ("within", "above"), BY_NULL, "Untrained models of this shape do the same."),
        otherwise=f"The twins are not distinguished{needed(rows['beyond_twins'], MARGIN)}.",
    )


def _factor(logs: Span) -> str:
    low, value, high = (tidy(math.exp(bound)) for bound in (logs.low, logs.value, logs.high))
    return f"{value} [{low}, {high}]"


def _power(row: Score) -> str:
    if row.mde is None:
        return ""
    return f"Of 100 such runs 80 would see a factor of {tidy(math.exp(max(row.mde, MARGIN)))}."
