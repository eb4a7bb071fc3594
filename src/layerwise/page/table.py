"""A table as text, and the same as HTML, as Markdown and as lines of the terminal."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from markupsafe import Markup

from layerwise.page.markup import escape_markdown, html_part

WIDEST, LONGEST = 32, 100  # characters of the first cell of a row in the terminal, and of any other
GAP = "  "


@dataclass(frozen=True, slots=True)
class Tone:
    """The colour of a cell on the page: its class, how strong it is (0 to 1), and what the pointer shows."""

    name: str
    strength: float
    title: str


@dataclass(frozen=True, slots=True)
class Table:
    """The headings and the cells; the columns from `numeric_from` on hold numbers.

    Columns in `code` are selected as a whole by a click. `tones` colors cells by (row, column), which makes the table a
    picture; `badges` maps a word at the start of a cell to its kind of badge. On the page, `picture` draws what stands
    before the first cell of a row, and a table that `is_sortable` can be sorted by its headings, and searched.
    """

    head: tuple[str, ...]
    body: tuple[tuple[str, ...], ...]
    numeric_from: int = 1
    code: tuple[int, ...] = ()
    tones: Mapping[tuple[int, int], Tone] = field(default_factory=dict)
    badges: Mapping[str, str] = field(default_factory=dict)
    picture: Callable[[str], Markup] | None = None
    is_sortable: bool = False

    def html(self) -> Markup:
        return html_part("table", it=self)

    def markdown(self) -> str:
        """The table with a line under its head; every cell is escaped.

        >>> print(Table(("a", "b"), (("1", "x|y"),)).markdown())
        | a | b |
        | --- | --- |
        | 1 | x\\|y |
        """
        head, *body = [[escape_markdown(cell) for cell in row] for row in (self.head, *self.body)]
        return "\n".join(f"| {' | '.join(line)} |" for line in (head, ["---"] * len(head), *body))

    def section(self, title: str) -> str:
        return f"## {escape_markdown(title)}\n\n{self.markdown()}" if self.body else ""

    def first(self, columns: int) -> Table:
        return replace(self, head=self.head[:columns], body=tuple(row[:columns] for row in self.body))

    def lines(self) -> tuple[str, ...]:
        """The table in the terminal, its columns aligned; nothing where it has no rows."""
        if not self.body:
            return ()
        rows = [
            [_shortened(row[0], WIDEST), *(_shortened(cell, LONGEST) for cell in row[1:])]
            for row in (self.head, *self.body)
        ]
        widths = [max(len(row[column]) for row in rows) for column in range(len(self.head))]
        return tuple(
            GAP.join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
        )


def _shortened(text: str, most: int) -> str:
    shown = " ".join(text.split("\n"))
    return shown if len(shown) <= most else f"{shown[: most - 1]}…"
