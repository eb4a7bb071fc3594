"""What a plan may cost: layers, milliseconds or bytes, as a number or as a share; and the front of loss and price."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Literal, get_args

from layerwise.errors import OptionError
from layerwise.plan import Plan

Unit = Literal["layers", "ms", "bytes"]
UNITS: tuple[Unit, ...] = get_args(Unit)

_AMOUNT = re.compile(r"(\d+(?:\.\d+)?)(x?)", re.ASCII)
_HOW = 'write one of "layers=24", "layers=0.75x", "ms=0.75x", "bytes=0.8x"'


@dataclass(frozen=True, slots=True)
class Budget:
    """One of three limits: a number, or a text such as `0.75x`, a share of what the original model costs.

    `layers` counts layer evaluations, a sublayer as a half; `ms` are milliseconds of a full pass, with embedding and
    head; `bytes` are those of the plan's weights, each layer once, in memory or in the GGUF file.

    >>> Budget(layers=24), Budget(ms="0.75x").limit(80.0)
    (Budget('layers=24'), 60.0)
    """

    layers: float | str | None = None
    ms: float | str | None = None
    bytes: float | str | None = None

    def __post_init__(self) -> None:
        given = [item.name for item in fields(self) if getattr(self, item.name) is not None]
        if len(given) != 1:
            raise OptionError(f"a budget has one limit, and {len(given)} were given; {_HOW}")
        text = str(getattr(self, given[0]))
        match = _AMOUNT.fullmatch(text)
        if match is None or not 0 < float(match[1]) < math.inf:
            raise OptionError(f"the budget {given[0]}={text[:40]!r} is no number above 0 and no share; {_HOW}")
        object.__setattr__(self, given[0], text)

    def __repr__(self) -> str:
        return f"Budget({str(self)!r})"

    def __str__(self) -> str:
        return f"{self.unit}={getattr(self, self.unit)}"

    @classmethod
    def parse(cls, text: str | Budget) -> Budget:
        """Read `layers=24`, `layers=0.75x`, `ms=0.75x` or `bytes=0.8x`; a budget is returned as it is.

        >>> Budget.parse("layers=24") == Budget(layers=24)
        True
        """
        if isinstance(text, Budget):
            return text
        unit, _, amount = text.replace(" ", "").partition("=")
        if unit not in UNITS:
            raise OptionError(f"the budget {text[:40]!r} has no unit that is known ({', '.join(UNITS)}); {_HOW}")
        return cls(**{unit: amount})

    @property
    def unit(self) -> Unit:
        """What is limited."""
        return next(unit for unit in UNITS if getattr(self, unit) is not None)

    @property
    def holds_whole(self) -> bool:
        """Whether it is a share of the whole model, and leaves room for it.

        >>> Budget(layers="2x").holds_whole, Budget(layers="0.9x").holds_whole, Budget(layers=40).holds_whole
        (True, False, False)
        """
        text = str(getattr(self, self.unit))
        return text.endswith("x") and float(text[:-1]) >= 1

    def limit(self, whole: float) -> float:
        """The limit in its unit, where the whole model costs `whole`; a share of layers is rounded down.

        >>> Budget(layers="0.7x").limit(12)
        8.0
        """
        amount, share = _AMOUNT.fullmatch(getattr(self, self.unit)).groups()  # type: ignore[union-attr]
        limit = float(amount) * whole if share else float(amount)
        return float(math.floor(limit + 1e-9)) if self.unit == "layers" and share else limit


@dataclass(frozen=True, slots=True)
class FrontPoint:
    """A plan of the front, its price and its loss in nats per token."""

    plan: Plan
    price: float
    loss: float


def front(losses: Mapping[Plan, float], price: Callable[[Plan], float]) -> list[FrontPoint]:
    """The plans of which no other is both as cheap and as good, the cheapest first.

    >>> plans = {Plan.parse(text): loss for text, loss in [("0-2", 1.0), ("0 1", 1.5), ("1 2", 1.2), ("0", 1.4)]}
    >>> [str(point.plan) for point in front(plans, lambda plan: len(plan.steps()))]
    ['0', '1 2', '0-2']
    """
    points: list[FrontPoint] = []
    for plan, loss in sorted(losses.items(), key=lambda item: (price(item[0]), item[1], str(item[0]))):
        if not points or loss < points[-1].loss:
            points.append(FrontPoint(plan, price(plan), loss))
    return points


def thinned(points: list[FrontPoint], most: int) -> list[FrontPoint]:
    """At most so many of the points, evenly spaced, both ends among them.

    >>> points = [FrontPoint(Plan.of([0]), float(n), 0.0) for n in range(9)]
    >>> [point.price for point in thinned(points, 3)]
    [0.0, 4.0, 8.0]
    """
    if len(points) <= most:
        return points
    return [points[round(index * (len(points) - 1) / (most - 1))] for index in range(most)]
