"""Derive a growth schedule from layer importance.

Let s_l be the loss increase when layer l is skipped (0 if negative), and s_max the largest detected increase. Layer l
is trained in the last fraction b_l = sqrt(min(1, s_l / s_max)) of the steps, rounded to equal parts of the training
run. If the remaining loss of a layer falls as s / b, the total loss is smallest for b proportional to sqrt(s). A layer
is never trained if its interval is below 0 or within `min_effect` of 0. The embedding and the head are always trained.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from layerwise.errors import PlanError
from layerwise.plan.schedule.cost import ModelCost, share_of_uniform
from layerwise.plan.schedule.schedule import GrowthSchedule, Phase, counted

PHASES = 4
"""Default number of equal parts of a training run. A layer is trained in the last one or more of them."""

MIN_EFFECT = 0.01
"""Default smallest effect that counts, in nats/token. `diagnose` uses it, too."""


@dataclass(frozen=True, slots=True)
class Importance:
    """Loss increase in nats/token when one layer is skipped, with its confidence interval.

    >>> detected, inconclusive = Importance(0.3, 0.2, 0.4), Importance(0.3, -0.1, 0.7)
    >>> detected.detected(min_effect=0.01), inconclusive.detected(min_effect=0.01)
    (True, False)
    >>> inconclusive.is_excluded(min_effect=0.01), Importance(0.0, -0.005, 0.005).is_excluded(min_effect=0.01)
    (False, True)
    """

    value: float
    low: float
    high: float

    def __post_init__(self) -> None:
        if not all(math.isfinite(bound) for bound in (self.value, self.low, self.high)) or self.low > self.high:
            raise PlanError(f"importance must be finite, with low <= high, got {self}")

    def detected(self, min_effect: float) -> bool:
        """Return whether the interval is above 0 and not entirely below `min_effect`."""
        return self.low > 0 and self.high >= min_effect

    def is_excluded(self, min_effect: float) -> bool:
        """Return whether the interval is below 0, or between `-min_effect` and `min_effect`."""
        return self.high <= 0 or (-min_effect < self.low and self.high < min_effect)

    def __str__(self) -> str:
        return f"{self.value:+.4f} [{self.low:+.4f}, {self.high:+.4f}]"


@dataclass(frozen=True, slots=True)
class Allocation:
    """Training time of each layer. The run has `phases` equal parts; layer l trains in the last `parts[l]`."""

    importance: tuple[Importance, ...]
    min_effect: float
    phases: int
    parts: tuple[int, ...]

    @property
    def depth(self) -> int:
        return len(self.parts)

    @property
    def shares(self) -> tuple[float, ...]:
        return tuple(share or 0.0 for share in _shares(self.importance, self.min_effect))

    @property
    def spent(self) -> float:
        """Mean fraction of the steps in which a layer is trained; 1 in uniform training."""
        return sum(self.parts) / (self.phases * self.depth)

    def schedule(self, name: str = "importance") -> GrowthSchedule:
        begins = sorted({self.phases - parts for parts in self.parts if parts})
        phases = []
        for first, end in pairwise([*begins, self.phases]):
            trains = tuple(layer for layer, parts in enumerate(self.parts) if parts >= self.phases - first)
            phases.append(Phase(counted(len(trains), "layer"), (end - first) / self.phases, trains))
        return GrowthSchedule(name, self.depth, tuple(phases))


def allocation(importance: Sequence[Importance], *, min_effect: float = MIN_EFFECT, phases: int = PHASES) -> Allocation:
    """Decide from the importance of each layer how long to train it.

    Args:
        importance: Importance of every layer, in order.
        min_effect: Smallest effect that counts, in nats/token.
        phases: Number of equal parts of the training run. A layer is trained in the last one or more of them.

    Raises:
        PlanError: If no layer has a detected effect.

    >>> found = allocation([Importance(0.4, 0.3, 0.5), Importance(0.0, -0.005, 0.005), Importance(0.1, 0.05, 0.15)])
    >>> [(phase.share, phase.trains) for phase in found.schedule().phases]
    [(0.5, (0,)), (0.5, (0, 2))]
    """
    if not importance:
        raise PlanError("importance must not be empty; pass one value per layer, in order")
    shares = _shares(importance, min_effect)
    parts = tuple(0 if share is None else max(1, round(phases * share)) for share in shares)
    return Allocation(tuple(importance), min_effect, phases, parts)


def explain_allocation(allocation: Allocation) -> str:
    """Format a table of the effect of every layer, when it is trained, and the total cost.

    >>> importance = [Importance(0.4, 0.3, 0.5), Importance(0.0, -0.005, 0.005), Importance(0.1, 0.0, 0.2)]
    >>> print(explain_allocation(allocation(importance)))
    layer  effect of skipping it (nats)  share  learns
        0  +0.4000 [+0.3000, +0.5000]    1.000  in the last 4/4 of the steps
        1  +0.0000 [-0.0050, +0.0050]    0.000  never: its effect is at most 0.01 nats
        2  +0.1000 [+0.0000, +0.2000]    0.500  in the last 2/4 of the steps (effect inconclusive)
    share: sqrt(effect / largest detected effect), rounded to 4 parts of the run
    budget: 0.5 of all layer-steps; 0.833 of the FLOPs of uniform training (layers only)
    """
    title = "effect of skipping it (nats)"
    width = max(len(title), *(len(str(each)) for each in allocation.importance))
    lines = [f"layer  {title:<{width}}  share  learns"]
    rows = zip(allocation.importance, allocation.shares, allocation.parts, strict=True)
    for layer, (effect, share, parts) in enumerate(rows):
        learns = f"in the last {parts}/{allocation.phases} of the steps"
        if not parts:
            learns = f"never: its effect is at most {allocation.min_effect:g} nats"
        elif not effect.detected(allocation.min_effect):
            learns += " (effect inconclusive)"
        lines.append(f"{layer:>5}  {effect!s:<{width}}  {share:.3f}  {learns}")
    cost = share_of_uniform(allocation.schedule(), ModelCost((1.0,) * allocation.depth, embedding=0.0, head=0.0))
    lines.append(f"share: sqrt(effect / largest detected effect), rounded to {allocation.phases} parts of the run")
    lines.append(
        f"budget: {allocation.spent:.3g} of all layer-steps; {cost:.3g} of the FLOPs of uniform training (layers only)"
    )
    return "\n".join(lines)


def _shares(importance: Sequence[Importance], min_effect: float) -> list[float | None]:
    strongest = max((each.value for each in importance if each.detected(min_effect)), default=0.0)
    if strongest <= 0:
        largest = max(range(len(importance)), key=lambda layer: importance[layer].value)
        raise PlanError(
            f"no layer has a detectable effect above {min_effect:g} nats/token (largest: layer {largest}, "
            f"{importance[largest]}), so no schedule can be derived; measure on more text, or use a better model"
        )
    return [
        None if each.is_excluded(min_effect) else min(1.0, max(0.0, each.value) / strongest) ** 0.5
        for each in importance
    ]
