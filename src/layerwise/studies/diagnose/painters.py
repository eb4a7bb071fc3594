"""The question of "Transformer Layers as Painters" that a diagnosis answers."""

from __future__ import annotations

import math

from layerwise.page.data import ReportData
from layerwise.page.evidence import describe_text_needed, read_contrasts
from layerwise.page.finding import Finding, Published, Question, Verdict, format_estimate
from layerwise.page.papers import PAINTERS
from layerwise.results.estimate import Estimate

LOG_FACTOR = math.log(1.25)

SMALL_CHANGES = Question(
    "Do the middle layers change the state less than others?",
    "Compared is the median Block Influence of the middle half of the layers with that of the others, and this ratio"
    " with that of five randomly initialized models, the null. Ratios within a factor of 1.25 are alike.",
    Published(
        PAINTERS,
        "Middle layers share one space: each changes the state little.",
        "maps of cosines",
        "section 3.1, figure 3",
    ),
    "times as far as another layer",
    1.25,
)


def judge_middle_layers_change_states_less(data: ReportData) -> Finding | None:
    """Compare the Block Influence of middle layers with that of the others, in this model and untrained ones."""
    rows = read_contrasts(data, "middle")
    ratio, beyond = (Estimate.read_bounded(rows.get(metric)) for metric in ("log_ratio", "beyond_twins"))
    if ratio is None:
        return None
    at, at_null = ratio.locate(LOG_FACTOR), beyond and beyond.locate(LOG_FACTOR)
    if at in ("within", "above"):
        verdict, answer = Verdict.CONTRADICTED, "No: the middle layers change the state no less."
    elif at == "open":
        verdict = Verdict.INCONCLUSIVE
        answer = f"The middle is not distinguished from the rest{describe_text_needed(ratio, LOG_FACTOR)}."
    elif beyond is None:
        verdict, answer = Verdict.INCONCLUSIVE, "Without untrained models the architecture may make the difference."
    elif at_null == "below":
        verdict, answer = Verdict.SUPPORTED, "Yes, and untrained models of this shape do not."
    elif at_null in ("within", "above"):
        verdict, answer = Verdict.NO_BETTER_THAN_NULL, "Untrained models of this shape do the same."
    else:
        verdict = Verdict.INCONCLUSIVE
        answer = f"Untrained models are not distinguished{describe_text_needed(beyond, LOG_FACTOR)}."
    times = "" if beyond is None else f" Relative to untrained models: {format_estimate(beyond.exponentiate())}."
    return SMALL_CHANGES.answer(verdict, answer + times, ratio.exponentiate())


PAINTERS_FINDINGS = (judge_middle_layers_change_states_less,)
