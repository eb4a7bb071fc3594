"""A table as text, and the same as HTML, as Markdown and as lines of the terminal."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from layerwise.page.text.markup import Safe, element, escaped, join, measured

WIDEST, LONGEST = 32, 100  # characters of the first cell of a row in the terminal, and of any other
GAP = "  "
FILTER = element(
    "div",
    element("label", "Find ", element("input", type="search", placeholder="any words of a row")),
    element("output", aria_live="polite"),
    class_="filters",
)


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
    picture: Callable[[str], Safe] | None = None
    is_sortable: bool = False

    def html(self) -> Safe:
        """The table on the page; of a number the interval is set smaller."""
        kinds = ["text" if index < self.numeric_from else "number" for index in range(len(self.head))]
        sort = {"aria_sort": "none"} if self.is_sortable else {}
        head = [
            element("th", element("button", text, type="button") if sort else text, scope="col", class_=kind, **sort)
            for text, kind in zip(self.head, kinds, strict=True)
        ]
        body = [
            element(
                "tr",
                element("th", *([self.picture(row[0])] if self.picture else []), self._text(0, row[0]), scope="row"),
                *(self._cell(line, at, text, kinds[at]) for at, text in enumerate(row) if at),
            )
            for line, row in enumerate(self.body)
        ]
        look = {"class_": "toned"} if self.tones else {"class_": "sortable"} if self.is_sortable else {}
        table = element("table", element("thead", element("tr", *head)), element("tbody", join(body)), **look)
        kind = "scroll bare" if self.tones else "scroll stacked badged" if self.badges else "scroll stacked"
        scrolled = element("div", table, class_=kind, tabindex="0")
        return join([FILTER, scrolled]) if self.is_sortable else scrolled

    def _cell(self, line: int, column: int, text: str, kind: str) -> Safe:
        shown, tone = measured(text) if kind == "number" else self._text(column, text), self.tones.get((line, column))
        if tone is None:
            return element("td", shown, class_=kind)
        return element("td", shown, class_=f"{kind} {tone.name}", style=f"--left:{tone.strength:.3f}", title=tone.title)

    def _text(self, column: int, text: str) -> str:
        word, bracket, rest = text.partition(" (")
        if word in self.badges:
            return join([element("span", word, class_=f"badge {self.badges[word]}"), bracket, rest])
        if column not in self.code or not text:
            return text
        lines = [part for line in text.split("\n") for part in (Safe(element("br")), line)][1:]
        return element("code", *lines, style="user-select: all")

    def markdown(self) -> str:
        """The table with a line under its head; every cell is escaped.

        >>> print(Table(("a", "b"), (("1", "x|y"),)).markdown())
        | a | b |
        | --- | --- |
        | 1 | x\\|y |
        """
        head, *body = [[escaped(cell) for cell in row] for row in (self.head, *self.body)]
        return "\n".join(f"| {' | '.join(line)} |" for line in (head, ["---"] * len(head), *body))

    def section(self, title: str) -> str:
        return f"## {escaped(title)}\n\n{self.markdown()}" if self.body else ""

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
