"""The claim that order matters more for reasoning: a wrong order against absence, on tasks with answers and on text."""

from __future__ import annotations

import math

from layerwise.report.claims.claim import BY_NULL, CONTRADICTED, NOT_ABOVE, SUPPORTED, Claim, Published, Span
from layerwise.report.claims.contrasts import CONTRAST, contrasts
from layerwise.report.claims.power import needed, on_tokens
from layerwise.report.evidence import Evidence
from layerwise.report.page.number_format import tidy
from layerwise.report.page.wording import listed
from layerwise.results.rows import Score

MARGIN = math.log(1.25)

ORDER = Published(
    "order_by_task",
    "Order matters more for reasoning",
    "Running layers in another order costs more on mathematics and reasoning than on text.",
    "arXiv 2407.09298, section 3.6",
    "Two contrasts: what a wrong order costs on reasoning less what it costs on text, and the ratio of order to absence"
    " (the same layers left out) on reasoning by that on text. A wrong order is the reverse, random ones, and layers"
    " side by side, in equal parts. Tasks with answers are reasoning, but not copying. Supported: both lie above their"
    " nulls, 0 and 1. Explained by the null: the first does, and the ratio lies inside 1/1.25 to 1.25, or below 1: the"
    " task is fragile, whatever the damage. Contradicted: a wrong order costs less on reasoning than on text.",
    "It needs plans that reorder layers, on a text and on a task with answers: layerwise diagnose.",
)


def order(evidence: Evidence) -> Claim:
    """Does a wrong order of the layers cost more on reasoning tasks than on text, and by more than absence does?"""
    task = next(iter(evidence.diagnosis.tasks(CONTRAST, "order_less")), "")
    rows = contrasts(evidence, ORDER.key, "order_less", task=task)
    bounds = rows.span("order_less") if rows else None
    if rows is None or bounds is None:
        return ORDER.unmeasured()
    reasoning, _, text = (listed(part.split()) for part in task.partition(" | "))
    less, beside = rows["order_less"], rows.span("log_ratio")
    figures = (
        f"In another order reasoning ({reasoning}) loses {bounds.signed} nats per token more than text ({text})"
        f"{on_tokens([less])}{_factor(beside)}."
    )
    ratio = rows.scores.get("log_ratio")
    if bounds.position() == "below":
        return Claim(ORDER, CONTRADICTED, figures, "A wrong order costs more on text.")
    if bounds.position() != "above":
        return ORDER.undecided(figures, "The two are not distinguished.", _power(less, ratio))
    if ratio is None or beside is None:
        why = "No plan leaves the layers out, so the task may just be fragile."
        return ORDER.undecided(figures, why, _power(less, None))
    position = beside.position(MARGIN)
    fragile = "Reasoning loses as many times more when layers are left out: it is fragile, whatever the damage."
    return ORDER.decided(
        figures,
        _power(less, ratio),
        (position == "above", SUPPORTED, "Order weighs more on reasoning than absence does."),
        (position in NOT_ABOVE, BY_NULL, fragile),
        otherwise=f"Whether reasoning is just fragile is not resolved{needed(ratio, MARGIN)}.",
    )


def _factor(beside: Span | None) -> str:
    if beside is None:
        return ""
    low, value, high = (math.exp(min(bound, 50.0)) for bound in (beside.low, beside.value, beside.high))
    factor = f"{tidy(value)} [{tidy(low)}, {tidy(high)}]"
    return f"; of what absence costs, order costs {factor} times as much on reasoning as on text"


def _power(less: Score, ratio: Score | None) -> str:
    """What each of the two contrasts has to come to."""
    if less.mde is None:
        return ""
    nats = f"Of 100 such runs 80 would see {tidy(less.mde)} nats between the two kinds"
    if ratio is None or ratio.mde is None:
        return f"{nats}."
    return f"{nats}, and a factor of {tidy(math.exp(max(ratio.mde, MARGIN)))} beside absence."
