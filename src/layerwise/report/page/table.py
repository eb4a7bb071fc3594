"""A table as text, and the same as HTML, as Markdown and as lines of the terminal."""

from __future__ import annotations

from dataclasses import dataclass

from layerwise.report.page.markup import Safe, element, join, measured
from layerwise.report.page.plain_markdown import escaped

WIDEST = 32  # characters of the first cell of a row in the terminal
GAP = "  "


@dataclass(frozen=True, slots=True)
class Table:
    """The headings and the cells; the columns from `numeric_from` on hold numbers.

    Those of `code` hold text to be copied, such as plans: on the page one click selects a cell whole.
    """

    head: tuple[str, ...]
    body: tuple[tuple[str, ...], ...]
    numeric_from: int = 1
    code: tuple[int, ...] = ()

    def html(self) -> Safe:
        """The table on the page; of a number the interval is set smaller."""
        kinds = ["text" if index < self.numeric_from else "number" for index in range(len(self.head))]
        head = [element("th", text, scope="col", class_=kind) for text, kind in zip(self.head, kinds, strict=True)]
        body = [
            element(
                "tr",
                element("th", self._text(0, row[0]), scope="row"),
                *(
                    element("td", measured(text) if kind == "number" else self._text(at, text), class_=kind)
                    for at, (text, kind) in enumerate(zip(row[1:], kinds[1:], strict=True), start=1)
                ),
            )
            for row in self.body
        ]
        table = element("table", element("thead", element("tr", *head)), element("tbody", join(body)))
        return element("div", table, class_="scroll stacked", tabindex="0")

    def _text(self, column: int, text: str) -> str:
        return element("code", text, style="user-select: all") if column in self.code and text else text

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
        """The table as Markdown under a heading, or nothing when it has no rows."""
        return f"## {escaped(title)}\n\n{self.markdown()}" if self.body else ""

    def lines(self) -> tuple[str, ...]:
        """The table in the terminal, its columns aligned; nothing where it has no rows."""
        if not self.body:
            return ()
        rows = [[_shortened(row[0]), *row[1:]] for row in (self.head, *self.body)]
        widths = [max(len(row[column]) for row in rows) for column in range(len(self.head))]
        return tuple(
            GAP.join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
        )


def _shortened(name: str) -> str:
    return name if len(name) <= WIDEST else f"{name[: WIDEST - 1]}…"
