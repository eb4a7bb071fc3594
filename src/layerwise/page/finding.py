"""A finding: a question, its answer in words and numbers, and how firm the answer is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from layerwise.page.text.number_format import between, excludes_zero, is_resolved
from layerwise.results.rows import Score
from layerwise.results.vocabulary import EQUAL_NATS

State = Literal["resolved", "unresolved", "described"]
Effect = Literal["better", "worse", "open", "bare"]
"""What an interval says of a difference; `open` is inconclusive, `bare` has neither an interval nor a p."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A question, its answer, and how firm the answer is; the page sets numbers with an interval apart."""

    question: str
    text: str
    state: State


def settled(known: bool | None) -> State:
    """How firm an answer is, by whether its intervals decide it; `None` where there are none.

    >>> settled(True), settled(False), settled(None)
    ('resolved', 'unresolved', 'described')
    """
    return "described" if known is None else "resolved" if known else "unresolved"


def judged(row: Score, level: float, *, more_is_better: bool = False) -> Effect:
    """What the interval of a difference says: by default less is better, as of a loss.

    >>> row = Score("healing_contrast", "difference", -0.2, -0.3, -0.1)
    >>> judged(row, 0.05), judged(row, 0.05, more_is_better=True)
    ('better', 'worse')
    """
    if row.p is None and row.p_adjusted is None and row.low is None:
        return "bare"
    if not is_resolved(row, level):
        return "open"
    return "better" if (row.value > 0.0) == more_is_better else "worse"


def describe_loss_change(row: Score) -> str:
    """Say what a plan does to the loss; only an interval that excludes zero shows that it costs or gains.

    >>> rows = (Score("search", "delta_nll", value, value - 0.1, value + 0.1) for value in (0.2, -0.2, 0.0))
    >>> list(map(describe_loss_change, rows))
    ['costs +0.200 [+0.100, +0.300]', 'gains 0.200 [0.100, 0.300]', 'changes the loss by 0.000 [−0.100, +0.100]']
    """
    if excludes_zero(row) and row.value < 0.0:
        return f"gains {between(-row.value, -(row.high or 0.0), -(row.low or 0.0))}"
    does = "costs" if excludes_zero(row) else "changes the loss by"
    return f"{does} {between(row.value, row.low, row.high, signed=True)}"


def is_equal(row: Score) -> bool:
    """Whether the interval of a difference of losses lies within the margin of equality.

    >>> is_equal(Score("search", "above_chosen", 0.001, -0.002, 0.004)), is_equal(Score("search", "above_chosen", 0.0))
    (True, False)
    """
    return row.low is not None and row.high is not None and max(-row.low, row.high) <= EQUAL_NATS


def firmness(effect: Effect) -> State:
    return settled(None if effect == "bare" else effect != "open")
