"""How a number is formatted and plotted: scale, decimals, unit and interval, for tables, sentences and figures."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from layerwise.page.text.number_format import between, fixed, probability, tidy
from layerwise.results.rows import Score

ABSENT = "–"


@dataclass(frozen=True, slots=True, kw_only=True)
class Show:
    """The format of a quantity with the axis title `axis`.

    A value is multiplied by `scale` and written with `decimals` (default: three significant digits), a sign if it is
    `signed`, its `unit`, and with `bounds` its interval. `span` is the axis range, `reference` the value of a dotted
    line.
    """

    axis: str = ""
    scale: float = 1.0
    decimals: int | None = None
    unit: str = ""
    signed: bool = False
    bounds: bool = True
    whole: bool = False
    span: tuple[float, float] | None = None
    reference: float | None = None

    def shown(self, score: Score) -> Score:
        if self.scale == 1.0:
            return score
        low, high = (None if bound is None else self.scale * bound for bound in (score.low, score.high))
        return replace(score, value=self.scale * score.value, low=low, high=high)

    def text(self, score: Score | None) -> str:
        """The value with its unit and its interval; a dash where there is none.

        >>> row = Score("healing", "share", 0.412, 0.38, 0.451)
        >>> Show().text(row), PERCENT.text(row), Show(decimals=1, bounds=False).text(row), Show().text(None)
        ('0.412 [0.380, 0.451]', '41.2 % [38.0, 45.1]', '0.4', '–')
        """
        if score is None:
            return ABSENT
        own = self.shown(score)
        if not self.bounds or own.low is None or own.high is None:
            return self.number(score.value)
        if self.decimals is None and not self.unit:
            return between(own.value, own.low, own.high, signed=self.signed)
        written, _, interval = between(own.value, own.low, own.high, signed=self.signed).partition(" ")
        if self.decimals is not None:
            written, low, high = (
                fixed(each, self.decimals, signed=self.signed) for each in (own.value, own.low, own.high)
            )
            interval = f"[{low}, {high}]"
        return f"{written}{self.unit} {interval}"

    def interval(self, score: Score) -> str:
        """The interval alone; nothing where there is none.

        >>> Show().interval(Score("healing", "share", 0.412, 0.38, 0.451))
        '[0.380, 0.451]'
        """
        own = self.shown(score)
        return between(own.value, own.low, own.high, signed=self.signed).partition(" ")[2]

    def number(self, value: float | None) -> str:
        if value is None:
            return ABSENT
        value = self.scale * value
        if self.whole:
            value = float(round(value))
        if self.decimals is None:
            return f"{tidy(value, signed=self.signed)}{self.unit}"
        return f"{fixed(value, self.decimals, signed=self.signed)}{self.unit}"

    def but(self, **changes: object) -> Show:
        """The same with some of its fields changed: `NATS.but(signed=True)`."""
        return replace(self, **changes)  # type: ignore[arg-type]


def p_value(row: Score) -> str:
    return probability(row.p)


def adjusted_p(row: Score) -> str:
    return probability(row.p_adjusted)


def detectable(row: Score) -> str:
    return ABSENT if row.mde is None else tidy(row.mde)


def plain(value: object) -> str:
    """A value of a column as a table has it.

    >>> plain(0.001), plain("lora")
    ('0.001', 'lora')
    """
    return f"{value:g}" if isinstance(value, float) else str(value)


def named(names: Mapping[Any, str]) -> Callable[[Any], str]:
    """How the values of columns are written that have names; others as they are.

    >>> [named({"mlp": "MLP"})(value) for value in ("mlp", "attention", 0.5)]
    ['MLP', 'attention', '0.5']
    """
    return lambda value: names.get(value) or plain(value)


NUMBER = Show()
SIGNED = Show(signed=True)
BARE = Show(bounds=False)
COUNT = Show(whole=True, bounds=False)
NATS = Show(axis="nats per token")
DIFFERENCE = Show(axis="Δ NLL (nats per token)", signed=True, reference=0.0)
PERCENT = Show(axis="percent", scale=100.0, unit=" %")
ACCURACY = Show(axis="accuracy (%)", scale=100.0, decimals=1, unit=" %", span=(-2.0, 102.0))
