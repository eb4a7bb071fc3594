"""The claim that order matters more for reasoning: a wrong order against absence, on tasks with answers and on text."""

from __future__ import annotations

import math

from layerwise.report.claims.claim import CONTRAST, Claim, Published, Span, needed, on_tokens, span
from layerwise.report.data import Evidence
from layerwise.report.notation import tidy
from layerwise.report.wording import listed
from layerwise.results.rows import Score

MARGIN = math.log(1.25)

ORDER = Published(
    "order_by_task",
    "Order matters more for reasoning",
    "Running layers in another order costs more on mathematics and reasoning than on text.",
    "arXiv 2407.09298, section 3.6",
    "Two contrasts: what a wrong order costs on reasoning less what it costs on text, and the ratio of order to absence"
    " (the same layers left out) on reasoning by that on text. Tasks with answers are reasoning, but not copying."
    " Supported: both lie above their nulls, 0 and 1. Explained by the null: the first does, and the ratio lies inside"
    " 1/1.25 to 1.25, or below 1: the task is fragile, whatever the damage. Contradicted: a wrong order costs less on"
    " reasoning than on text.",
)


def order(evidence: Evidence) -> Claim:
    """Does a wrong order of the layers cost more on reasoning tasks than on text?

    Read from the contrasts of `layerwise.measure.contrasts.order`, intervals over documents, task by task.

    - supported: reasoning loses more than text, and by a greater factor than under absence.
    - explained by the null: it loses more, and is shown to do so by no greater factor than under absence.
    - contradicted: it loses less than text.
    - not resolvable: anything else, and where absence was not measured.
    """
    found = evidence.diagnosis
    tasks = found.tasks(CONTRAST, "order_less")
    less = found.score(CONTRAST, ORDER.key, "order_less", tasks[0]) if tasks else None
    bounds = span(less)
    if less is None or bounds is None:
        why = "It needs plans that reorder layers, on a text and on a task with answers: layerwise diagnose."
        return ORDER.unmeasured(why)
    reasoning, _, text = (listed(part.split()) for part in tasks[0].partition(" | "))
    ratio = found.score(CONTRAST, ORDER.key, "log_ratio", tasks[0])
    beside = span(ratio)
    figures = (
        f"In another order reasoning ({reasoning}) loses {bounds.signed} nats per token more than text ({text})"
        f"{on_tokens([less])}{_factor(beside)}."
    )
    if bounds.position() == "below":
        return ORDER.claim("contradicted", figures, "A wrong order costs more on text.")
    if bounds.position() != "above":
        return ORDER.claim("not resolvable", figures, "The two are not told apart.", _power(less, ratio))
    if ratio is None or beside is None:
        why = "No plan leaves the layers out, so the task may just be fragile."
        return ORDER.claim("not resolvable", figures, why, _power(less, None))
    power = _power(less, ratio)
    position = beside.position(MARGIN)
    if position == "above":
        why = "Order weighs more on reasoning than absence does."
        return ORDER.claim("supported", figures, why, power)
    if position in ("within", "below"):
        why = "Reasoning loses as many times more when layers are left out: it is fragile, whatever the damage."
        return ORDER.claim("explained by the null", figures, why, power)
    more = needed(ratio, MARGIN)
    why = f"Whether reasoning is just fragile is not resolved{f'; {more}' if more else ''}."
    return ORDER.claim("not resolvable", figures, why, power)


def _factor(beside: Span | None) -> str:
    if beside is None:
        return ""
    low, value, high = (math.exp(min(bound, 50.0)) for bound in (beside.low, beside.value, beside.high))
    factor = f"{tidy(value)} [{tidy(low)}, {tidy(high)}]"
    return f"; of what absence costs, order costs {factor} times as much on reasoning as on text"


def _power(less: Score, ratio: Score | None) -> str:
    """What each of the two contrasts has to come to."""
    if less.resolution is None:
        return ""
    told = f"Of 100 such runs 80 would see {tidy(less.resolution)} nats between the two kinds"
    if ratio is None or ratio.resolution is None:
        return f"{told}."
    return f"{told}, and a factor of {tidy(math.exp(max(ratio.resolution, MARGIN)))} beside absence."
