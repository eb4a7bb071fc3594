"""The base class of figures: rows, series, colors and controls.

A `Picture` contains a complete figure for every setting of its controls; the script of the page only switches between
them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any, Literal

from markupsafe import Markup

from layerwise.page.data import ReportData
from layerwise.page.figures.frame import Figure
from layerwise.page.figures.palette import SERIES, assign_colors
from layerwise.page.formatting import NUMBER, Format, label
from layerwise.page.markup import html_part
from layerwise.results.rows import Score
from layerwise.results.selection import Rows

SqrtScale = Literal["", "optional", "default"]
"""Use of a square-root axis: never (empty), if the reader chooses it (`optional`), or from the start (`default`)."""

PILLS = 7  # more options than this become a menu


@dataclass(frozen=True, slots=True)
class Choice:
    """A control of a figure, and its options. The first option is the default."""

    question: str
    options: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Picture:
    """A place on the page for a figure with controls.

    `variants` maps the options that are selected (an index for each of `choices`) to a figure. If there are no choices,
    its only key is `()`. A picture with a `leader` has no controls and follows those of the picture with that name.
    """

    name: str
    alternative: str
    variants: Mapping[tuple[int, ...], Figure]
    choices: tuple[Choice, ...] = ()
    sqrt_scale: SqrtScale = ""
    leader: str | None = None

    @property
    def height(self) -> int:
        return max(figure.layout["height"] for figure in self.variants.values())

    @property
    def has_controls(self) -> bool:
        return self.leader is None and (
            bool(self.sqrt_scale) or any(len(choice.options) > 1 for choice in self.choices)
        )

    def html(self) -> Markup:
        return html_part("figure", picture=self, most_pills=PILLS)

    def payload(self) -> dict[str, Any]:
        return {
            "choices": len(self.choices),
            "leader": self.leader or self.name,
            "variants": {".".join(map(str, key)): figure.payload() for key, figure in self.variants.items()},
        }


Slots = Callable[[Sequence[str]], Mapping[str, int]]
"""Returns the color index of each series."""


def number_series(names: Sequence[str]) -> dict[str, int]:
    """Return a color index for each series, in the given order.

    >>> number_series(["lora", "identity"])
    {'lora': 0, 'identity': 1}
    """
    return {name: at % len(SERIES) for at, name in enumerate(names)}


@dataclass(frozen=True, kw_only=True)
class Mark(ABC):
    """The description of a figure: its rows, series, colors and controls.

    `derive` computes the rows (default: all rows of the run), `where` filters them (see `Rows.where`), and `show` is
    the format of their values. `note` is small print.

    Each value of the column `series` has a color, given by `slots` (a mapping, or a function of all names). If
    `known_series` is given, a series has the same color in all figures of a run. `legend` is the title of buttons that
    hide series (default: no buttons).

    `choices` maps the label of each control to the column from which it selects a value, and `by_choice` maps a value
    to the fields that it changes. If `each` names a column, every value of the column has a separate figure. All
    figures share one axis, except that each value of a choice in `apart` has a separate axis. `words` formats the
    values of `series`, `each` and `choices`.
    """

    name: str
    title: str = ""
    where: Mapping[str, Any] = field(default_factory=dict)
    derive: Callable[[ReportData], Iterable[Score]] | None = None
    show: Format = NUMBER
    series: str | None = None
    slots: Slots | Mapping[str, int] = number_series
    known_series: Callable[[ReportData], Iterable[str]] | None = None
    legend: str = ""
    choices: Mapping[str, str] = field(default_factory=dict)
    by_choice: Mapping[Any, Mapping[str, Any]] = field(default_factory=dict)
    apart: tuple[str, ...] = ("metric",)
    each: str | None = None
    words: Callable[[Any], str] = lambda value: label(str(value))
    height: int | None = None
    sqrt_scale: SqrtScale = ""
    note: str = ""

    @abstractmethod
    def figure(self, rows: Rows, data: ReportData, slots: Mapping[str, int], all_rows: Rows) -> Figure | None:
        """Return the figure of `rows`, or None if there is nothing to draw.

        `all_rows` are the rows of all figures that share its axis.
        """

    def rows(self, data: ReportData) -> Rows:
        rows = data.rows if self.derive is None else Rows(self.derive(data))
        return rows.where(**self.where) if self.where else rows

    def colors(self, rows: Rows, data: ReportData) -> Mapping[str, int]:
        if self.series is None:
            return {}
        names = [str(value) for value in rows.axis(self.series)]
        if isinstance(self.slots, Mapping):
            return {name: self.slots[name] for name in names if name in self.slots}
        if self.known_series is None:
            return self.slots(names)
        colors = assign_colors([*self.known_series(data), *names])
        return {name: colors[name] for name in names}

    def pictures(self, data: ReportData) -> Iterator[Picture]:
        """Yield one picture or, if `each` names a column, one picture for each value of this column."""
        rows = self.rows(data)
        if self.each is None:
            yield from self._picture(self.name, self.title, rows, data, rows)
            return
        values = rows.axis(self.each)
        for at, value in enumerate(values):
            name = f"{self.name}-{at}" if len(values) > 1 else self.name
            title = self.words(value) if len(values) > 1 or not self.title else self.title
            yield from self._picture(name, title, rows.where(**{self.each: value}), data, rows)

    def _picture(self, name: str, title: str, rows: Rows, data: ReportData, all_rows: Rows) -> Iterator[Picture]:
        slots = self.colors(all_rows, data)
        axes = {question: all_rows.axis(column) for question, column in self.choices.items()}
        variants = {}
        for key in product(*(range(len(values)) for values in axes.values())):
            selection = {
                column: values[at] for column, values, at in zip(self.choices.values(), axes.values(), key, strict=True)
            }
            selected = rows.where(**selection) if selection else rows
            alone = {column: value for column, value in selection.items() if column in self.apart}
            alike = all_rows.where(**alone) if alone else all_rows
            changed: dict[str, Any] = {}
            for answer in selection.values():
                changed |= self.by_choice.get(answer, {})
            drawn = replace(self, **changed)
            if len(selected) and (figure := drawn.figure(selected, data, slots, alike)) is not None:
                variants[key] = figure
        if variants:
            choices = tuple(Choice(question, tuple(map(self.words, values))) for question, values in axes.items())
            yield Picture(name, title, variants, choices, self.sqrt_scale)

    def series_of(self, row: Score) -> str:
        value = getattr(row, self.series) if self.series else None
        return "" if value is None else str(value)


def follow_first(pictures: Sequence[Picture]) -> list[Picture]:
    return [replace(each, leader=pictures[0].name) if at else each for at, each in enumerate(pictures)]
