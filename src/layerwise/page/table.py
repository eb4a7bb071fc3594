"""Tables as HTML, Markdown and terminal text."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from markupsafe import Markup

from layerwise.page.markup import escape_markdown, html_part

MAX_HEAD_WIDTH, MAX_CELL_WIDTH = 32, 100  # in the terminal
GAP = "  "


@dataclass(frozen=True, slots=True)
class Tone:
    """The color of a cell: its CSS class, strength (0 to 1), and tooltip."""

    name: str
    strength: float
    title: str


@dataclass(frozen=True, slots=True)
class Table:
    """A table of texts. The columns from `numeric_from` on contain numbers.

    A click on a cell in one of the columns `code` selects all of its text. `tones` maps (row, column) to the color of a
    cell. `badges` maps words to badges; a cell that begins with such a word shows the badge. On the page, `picture`
    draws something before the first cell of each row, and an `is_sortable` table can be sorted and searched.
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
        r"""Return the table as Markdown, with every cell escaped.

        >>> print(Table(("a", "b"), (("1", "x|y"),)).markdown())
        | a | b |
        | --- | --- |
        | 1 | x\|y |
        """
        head, *body = [[escape_markdown(cell) for cell in row] for row in (self.head, *self.body)]
        return "\n".join(f"| {' | '.join(line)} |" for line in (head, ["---"] * len(head), *body))

    def section(self, title: str) -> str:
        return f"## {escape_markdown(title)}\n\n{self.markdown()}" if self.body else ""

    def first(self, columns: int) -> Table:
        return replace(self, head=self.head[:columns], body=tuple(row[:columns] for row in self.body))

    def lines(self) -> tuple[str, ...]:
        if not self.body:
            return ()
        rows = [
            [_shorten(row[0], MAX_HEAD_WIDTH), *(_shorten(cell, MAX_CELL_WIDTH) for cell in row[1:])]
            for row in (self.head, *self.body)
        ]
        widths = [max(len(row[column]) for row in rows) for column in range(len(self.head))]
        return tuple(
            GAP.join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
        )


def _shorten(text: str, most: int) -> str:
    line = " ".join(text.split("\n"))
    return line if len(line) <= most else f"{line[: most - 1]}…"
