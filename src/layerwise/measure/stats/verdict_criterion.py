"""The rule of a verdict: what counts as an effect, and what the interval of one settles. Needs no torch."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from layerwise.errors import MeasureError

if TYPE_CHECKING:
    from layerwise.measure.stats.strata import Effect

Decision = Literal["matters", "no_effect", "harmful", "unresolved"]


@dataclass(frozen=True, slots=True)
class VerdictCriterion:
    """What counts as an effect: `margin` in nats per token, and the family-wise error rate `alpha`.

    >>> from layerwise.measure.stats.strata import Effect
    >>> effect = Effect(value=0.3, low=0.1, high=0.5, error=0.05, freedom=40)
    >>> VerdictCriterion().settles(effect), VerdictCriterion(margin=1).settles(effect)
    ('matters', 'no_effect')
    """

    margin: float = 0.01
    alpha: float = 0.05

    def __post_init__(self) -> None:
        if not 0 < self.margin < math.inf:
            raise MeasureError(f"a margin of {self.margin} nats was asked for; use a positive one, such as 0.01")
        if not 0 < self.alpha < 1:
            raise MeasureError(f"an error rate of {self.alpha} was asked for; use one between 0 and 1, such as 0.05")

    def settles(self, effect: Effect) -> Decision | None:
        """What an interval settles for good, `None` where it takes more text; harm is not for one text to settle.

        `no_effect` is an equivalence: the interval lies inside the margin. `matters` takes an interval above zero and
        a value at the margin or above it.
        """
        if self.holds(effect):
            return "no_effect"
        if effect.low > 0 and effect.value >= self.margin:
            return "matters"
        return None

    def holds(self, effect: Effect) -> bool:
        """Whether the margin holds the whole interval: an effect that counts is shown not to be there."""
        return -self.margin < effect.low and effect.high < self.margin

    def concludes(self, effect: Effect) -> Decision:
        """The decision when there is no more text: an effect above zero counts, however it stands to the margin.

        An interval that holds both zero and more than the margin decides nothing: `unresolved` is no verdict of none.
        """
        return self.settles(effect) or ("matters" if effect.low > 0 else "unresolved")
