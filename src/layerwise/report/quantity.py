"""What a robustness run leads with: accuracy in percent, or the loss of a language model in nats per token.

One is better when it is greater, the other when it is smaller. What must compare the two ways (colours, verdicts) asks
for the credit of a value instead: the accuracy itself, or exp(-loss), which is the geometric mean of the probabilities
given to the right tokens. Credit is a share of one and greater is always better.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from layerwise.report.page.number_format import fixed
from layerwise.results.rows import Score

PERCENT = 100.0
WHOLE_SPAN = (-2.0, 102.0)  # nothing to all, with air for the dots at either end


def scaled(score: Score, scale: float) -> Score:
    """The score and its interval, times `scale`."""
    low, high = (None if bound is None else scale * bound for bound in (score.low, score.high))
    return replace(score, value=scale * score.value, low=low, high=high)


@dataclass(frozen=True, slots=True)
class Quantity:
    """A metric of the rows as it is shown: its scale, its decimals, its axis, and which way is better.

    `span` is the whole range of the axis, where there is one: figures of one run are then read side by side.
    """

    metric: str
    name: str
    axis: str
    scale: float
    decimals: int
    sign: str
    span: tuple[float, float] | None
    greater_is_better: bool

    def shown(self, score: Score) -> Score:
        """The score in the unit of the axis."""
        return scaled(score, self.scale)

    def text(self, score: Score | None, *, signed: bool = False) -> str:
        """The value with its unit, and its interval.

        >>> ACCURACY.text(Score("robustness", "baseline", "sequential", "accuracy", 0.968, 0.95, 0.98))
        '96.8 % [95.0, 98.0]'
        """
        if score is None:
            return "–"
        value, low, high = (
            None if part is None else fixed(self.scale * part, self.decimals, signed=signed)
            for part in (score.value, score.low, score.high)
        )
        interval = "" if low is None or high is None else f" [{low}, {high}]"
        return f"{value}{self.sign}{interval}"

    def bare(self, score: Score) -> str:
        """The value with its unit, without its interval."""
        return self.text(replace(score, low=None, high=None))

    def credit(self, value: float) -> float:
        """The value, in the unit of the rows, as a share of one of which more is better.

        >>> ACCURACY.credit(0.9), round(LOSS.credit(math.log(4)), 2)
        (0.9, 0.25)
        """
        return value if self.greater_is_better else math.exp(-value)


ACCURACY = Quantity("accuracy", "accuracy", "accuracy (%)", PERCENT, 1, " %", WHOLE_SPAN, greater_is_better=True)
TOP_5 = Quantity(
    "accuracy_top5", "top-5 accuracy", "top-5 accuracy (%)", PERCENT, 1, " %", WHOLE_SPAN, greater_is_better=True
)
POINTS = Quantity(
    "accuracy_above@baseline",
    "points of accuracy above the baseline",
    "points of accuracy",
    PERCENT,
    1,
    "",
    None,
    greater_is_better=True,
)
NATS_ABOVE = Quantity(
    "nll_above@baseline", "nats above the baseline", "nats per token", 1.0, 2, "", None, greater_is_better=False
)
LOSS = Quantity("nll", "nats per token", "nats per token, lower is better", 1.0, 2, "", None, greater_is_better=False)
