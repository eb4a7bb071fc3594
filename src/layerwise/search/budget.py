"""Budget of a search in layers, milliseconds or bytes, and the Pareto front of loss and cost."""

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
_FIX = 'Pass, for example, "layers=24", "layers=0.75x", "ms=0.75x" or "bytes=0.8x".'


@dataclass(frozen=True, slots=True)
class Budget:
    """Limit on the cost of a plan: a number, or a multiple of the original model's cost, such as `0.75x`.

    Exactly one of the arguments is required.

    Args:
        layers: Number of layer evaluations. A sublayer counts as one half.
        ms: Milliseconds of a forward pass, including embedding and head.
        bytes: Bytes of the weights, in memory or in the GGUF file. A layer that runs several times counts once.

    Raises:
        OptionError: If there is not exactly one limit, or if it is not a positive number or multiple.

    Example:
    >>> Budget(layers=24), Budget(ms="0.75x").limit(80.0)
    (Budget('layers=24'), 60.0)
    """

    layers: float | str | None = None
    ms: float | str | None = None
    bytes: float | str | None = None

    def __post_init__(self) -> None:
        given = [item.name for item in fields(self) if getattr(self, item.name) is not None]
        if len(given) != 1:
            raise OptionError(f"a budget must have one limit, got {len(given)}. {_FIX}")
        text = str(getattr(self, given[0]))
        match = _AMOUNT.fullmatch(text)
        if match is None or not 0 < float(match[1]) < math.inf:
            raise OptionError(
                f"budget {given[0]} must be a positive number, or a multiple such as 0.75x, got {text[:40]!r}. {_FIX}"
            )
        object.__setattr__(self, given[0], text)

    def __repr__(self) -> str:
        return f"Budget({str(self)!r})"

    def __str__(self) -> str:
        return f"{self.unit}={getattr(self, self.unit)}"

    @classmethod
    def parse(cls, text: str | Budget) -> Budget:
        """Parse a budget such as `layers=24` or `ms=0.75x`; return a `Budget` unchanged.

        >>> Budget.parse("layers=24") == Budget(layers=24)
        True
        """
        if isinstance(text, Budget):
            return text
        unit, _, amount = text.replace(" ", "").partition("=")
        if unit not in UNITS:
            raise OptionError(f"the unit of a budget must be one of {', '.join(UNITS)}, got {text[:40]!r}. {_FIX}")
        return cls(**{unit: amount})

    @property
    def unit(self) -> Unit:
        return next(unit for unit in UNITS if getattr(self, unit) is not None)

    @property
    def fits_original(self) -> bool:
        """Check whether the limit is relative and at least `1x`, so that the original model fits.

        >>> Budget(layers="2x").fits_original, Budget(layers="0.9x").fits_original, Budget(layers=40).fits_original
        (True, False, False)
        """
        text = str(getattr(self, self.unit))
        return text.endswith("x") and float(text[:-1]) >= 1

    def limit(self, original: float) -> float:
        """Return the limit for an original model that costs `original`; a multiple of layers is rounded down.

        >>> Budget(layers="0.7x").limit(12)
        8.0
        """
        amount, share = _AMOUNT.fullmatch(getattr(self, self.unit)).groups()  # type: ignore[union-attr]
        limit = float(amount) * original if share else float(amount)
        return float(math.floor(limit + 1e-9)) if self.unit == "layers" and share else limit


@dataclass(frozen=True, slots=True)
class FrontPoint:
    """A plan on the Pareto front, its cost, and its loss in nats/token."""

    plan: Plan
    cost: float
    loss: float


def compute_front(losses: Mapping[Plan, float], cost: Callable[[Plan], float]) -> list[FrontPoint]:
    """Return the Pareto front of loss and cost, the cheapest plan first.

    >>> plans = {Plan.parse(text): loss for text, loss in [("0-2", 1.0), ("0 1", 1.5), ("1 2", 1.2), ("0", 1.4)]}
    >>> [str(point.plan) for point in compute_front(plans, lambda plan: len(plan.steps()))]
    ['0', '1 2', '0-2']
    """
    points: list[FrontPoint] = []
    for plan, loss in sorted(losses.items(), key=lambda item: (cost(item[0]), item[1], str(item[0]))):
        if not points or loss < points[-1].loss:
            points.append(FrontPoint(plan, cost(plan), loss))
    return points


def thin_out(points: list[FrontPoint], count: int) -> list[FrontPoint]:
    """Return at most `count` of the points, evenly spaced and including both ends.

    >>> points = [FrontPoint(Plan.of([0]), float(n), 0.0) for n in range(9)]
    >>> [point.cost for point in thin_out(points, 3)]
    [0.0, 4.0, 8.0]
    """
    if len(points) <= count:
        return points
    return [points[round(index * (len(points) - 1) / (count - 1))] for index in range(count)]
