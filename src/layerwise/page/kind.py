"""Describe the page of a kind of run: its sections with figures, tables and findings.

`layerwise.page.writers` writes this description as HTML, Markdown and terminal text. Titles and notes are in a Markdown
file with the name of the module. Below each heading is a paragraph:

    # healing | How much does healing recover? | Healing     anchor, title and menu entry of a section; its first text
    ## missing                                               text shown if nothing was healed
    ## nats | Nats/token above the original model            name and title of a part; its note
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.resources import files
from itertools import islice
from typing import Any, TypeVar

from markupsafe import Markup

from layerwise.page.data import ReportData
from layerwise.page.finding import Finding
from layerwise.page.formatting import ABSENT, NUMBER, Format
from layerwise.page.marks.mark import Mark
from layerwise.page.table import Table
from layerwise.results.rows import Score
from layerwise.results.selection import Rows


@cache
def load_texts(kind: str) -> dict[str, str]:
    return {key: " ".join(lines) for key, (_, lines) in _read(kind).items() if lines}


@cache
def load_titles(kind: str) -> dict[str, tuple[str, ...]]:
    return {key: named for key, (named, _) in _read(kind).items() if named}


def _read(kind: str) -> dict[str, tuple[tuple[str, ...], list[str]]]:
    from layerwise.catalogue import PAGES  # imports the verbs

    package, _, module = PAGES[kind].partition(":")[0].rpartition(".")
    text = files(package).joinpath(f"{module}.md").read_text(encoding="utf-8")
    words: dict[str, tuple[tuple[str, ...], list[str]]] = {}
    section, key = "", ""
    for line in map(str.strip, text.splitlines()):
        if line.startswith(("# ", "## ")):
            hashes, rest = line.split(" ", 1)
            name, *named = rest.split(" | ")
            section = name if hashes == "#" else section
            key = name if hashes == "#" else f"{section}/{name}"
            words[key] = (tuple(named), [])
        elif line:
            words[key][1].append(line)
    return words


Facts = Callable[[ReportData], Iterable[Finding | str]]
Derive = Callable[[ReportData], Iterable[Score]]


@dataclass(frozen=True, slots=True)
class Text:
    """Findings or sentences that a function computes from the rows.

    `folded` hides them behind their title on the page. `terminal` decides whether the terminal prints them (default:
    if they are not `folded`). `small` shows sentences in small print. The `note` is always in small print.
    """

    facts: Facts
    title: str = ""
    terminal: bool | None = None
    folded: bool = False
    small: bool = False
    note: str = ""
    name: str = ""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a `Pivot`. A cell shows one of the rows that belong to its line, formatted by `show`.

    `where` filters these rows. The cell shows the row with the first `metric` that exists, or the first row if no
    metric is given. If `text` is given, the cell shows what this function returns for all of the rows.
    """

    head: str
    metric: str | tuple[str, ...] = ()
    show: Format | Callable[[Score], str] = NUMBER
    where: Mapping[str, Any] = field(default_factory=dict)
    text: Callable[[Rows], str] | None = None

    def cell(self, rows: Rows) -> str:
        if self.text is not None:
            return self.text(rows.where(**self.where) if self.where else rows)
        metrics = (self.metric,) if isinstance(self.metric, str) else self.metric
        matching = (
            (rows.one(metric=metric, **self.where) for metric in metrics) if metrics else rows.where(**self.where)
        )
        row = next((row for row in matching if row is not None), None)
        if isinstance(self.show, Format):
            return self.show.text(row)
        return ABSENT if row is None else self.show(row)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pivot:
    """A table that groups the rows of a run by some of their columns, with a line for each combination of values.

    `rows` maps headings to these columns. A line has a cell for each of `columns` and, if `across` names a
    column, one for each value of that column. `where` and `derive` choose the rows as in `Mark`. If `split` names a
    column, each of its values has a separate table. `folded` hides the table behind its title. `terminal` prints it,
    or only its first columns if it is a number (default: if it is not `folded`). `words` formats the values of `rows`
    and `across`, `order` is the sort key of the lines, and `badges` has the words shown as badges. Empty columns are
    omitted.
    """

    name: str = ""
    title: str = ""
    rows: Mapping[str, str]
    columns: Sequence[Column] = ()
    across: str | None = None
    show: Format | Callable[[Score], str] = NUMBER
    where: Mapping[str, Any] = field(default_factory=dict)
    derive: Derive | None = None
    split: str | None = None
    folded: bool = False
    terminal: bool | int | None = None
    words: Callable[[Any], str] = str
    order: Callable[[tuple[Any, ...]], Any] | None = None
    badges: Mapping[str, str] = field(default_factory=dict)
    note: str = ""

    def tables(self, data: ReportData) -> Iterable[tuple[str, Table]]:
        rows = data.rows if self.derive is None else Rows(self.derive(data))
        rows = rows.where(**self.where) if self.where else rows
        if self.split is None:
            parts = {self.title: rows}
        else:
            groups = rows.by(self.split).items()
            parts = {", ".join(filter(None, (self.title, self.words(value)))): group for value, group in groups}
        for title, group in parts.items():
            table = self._table(group)
            if table.body:
                yield title, table

    def _table(self, rows: Rows) -> Table:
        keys = tuple(self.rows.values())
        lines: dict[tuple[Any, ...], None] = dict.fromkeys(tuple(getattr(row, key) for key in keys) for row in rows)
        across = rows.axis(self.across) if self.across else ()
        pivoted = (Column(self.words(value), show=self.show, where={str(self.across): value}) for value in across)
        columns = [*self.columns, *pivoted]
        ordered = list(lines)
        if self.order is not None:
            ordered.sort(key=self.order)
        elif "task" in keys:
            ordered.sort(key=lambda line: line[keys.index("task")] != "all")
        heads_by_line, cells = [], []
        for line in ordered:
            own = rows.where(**dict(zip(keys, line, strict=True)))
            heads_by_line.append(["" if value is None else self.words(value) for value in line])
            cells.append([column.cell(own) for column in columns])
        used = [at for at in range(len(columns)) if any(row[at] not in ("", ABSENT) for row in cells)]
        head = (*self.rows, *(columns[at].head for at in used))
        body = ((*heads, *(row[at] for at in used)) for heads, row in zip(heads_by_line, cells, strict=True))
        plans = tuple(at for at, key in enumerate(keys) if key == "plan")
        numeric_from = len(head) if self.badges else len(keys)
        return Table(head, tuple(body), numeric_from=numeric_from, code=plans, badges=self.badges)


@dataclass(frozen=True, slots=True, kw_only=True)
class CustomTable:
    """A table that a function computes, for tables that `Pivot` cannot describe."""

    name: str = ""
    title: str = ""
    table: Callable[[ReportData], Table]
    folded: bool = False
    terminal: bool | None = None
    note: str = ""

    def tables(self, data: ReportData) -> Iterable[tuple[str, Table]]:
        result = self.table(data)
        if result.body:
            yield self.title, result


@dataclass(frozen=True, slots=True)
class SideBySide:
    """Figures side by side. If all of them have the same controls, only the first one shows them."""

    marks: tuple[Mark, ...]


@dataclass(frozen=True, slots=True)
class CustomHtml:
    """HTML that a function returns. It is shown on the page but not in Markdown or on the terminal."""

    draw: Callable[[ReportData], Markup]
    name: str = ""
    title: str = ""
    note: str = ""


Part = Mark | SideBySide | Text | Pivot | CustomTable | CustomHtml


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A section of the page.

    `short` is its title in the menu. `parts` are its contents in reading order, or a function that returns them for a
    run. The section is shown if rows match `needs`, a filter or a function (default: rows whose measure is the anchor).
    Otherwise, the text `missing` is shown. `prose` is the kind of run whose Markdown file contains the texts of the
    section. Texts that are given here replace them.
    """

    anchor: str
    title: str = ""
    short: str = ""
    parts: tuple[Part, ...] | Callable[[ReportData], Iterable[Part]]
    missing: str = ""
    needs: Mapping[str, Any] | Callable[[ReportData], bool] | None = None
    prose: str = ""

    def present(self, data: ReportData) -> bool:
        if callable(self.needs):
            return self.needs(data)
        return bool(data.rows.where(**(self.needs or {"measure": self.anchor})))

    def parts_of(self, data: ReportData) -> tuple[Part, ...]:
        if not self.present(data):
            return ()
        parts = self.parts(data) if callable(self.parts) else self.parts
        return tuple(self._in_words(part) for part in parts)

    def of(self, kind: Kind) -> Section:
        source = self.prose or kind.name
        title, short = load_titles(source).get(self.anchor, (self.title, self.short))
        missing = self.missing or load_texts(source).get(f"{self.anchor}/missing", "")
        return replace(self, prose=source, title=self.title or title, short=self.short or short, missing=missing)

    def _in_words(self, part: Part) -> Part:
        if isinstance(part, SideBySide):
            return SideBySide(tuple(_titled(mark, self.prose, self.anchor) for mark in part.marks))
        return _titled(part, self.prose, self.anchor)


Named = TypeVar("Named", bound=Mark | Text | Pivot | CustomTable | CustomHtml)


def _titled(part: Named, source: str, anchor: str) -> Named:
    if not (source and part.name):
        return part
    key = f"{anchor}/{part.name}"
    title = "".join(load_titles(source).get(key, ()))
    return replace(part, title=part.title or title, note=part.note or load_texts(source).get(key, ""))


def list_notes(*measures: str) -> Facts:
    return lambda data: (note.text for note in data.notes if note.measure in measures)


def format_statement(statement: Finding | str) -> str:
    return f"{statement.question} {statement.answer}" if isinstance(statement, Finding) else statement


def join_statements(facts: Facts, count: int | None = 1) -> Callable[[ReportData], str]:
    """Return a function that joins the first `count` findings or sentences of a run (None: all of them)."""
    return lambda data: " ".join(map(format_statement, islice(facts(data), count)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A kind of run, and the page that is written for it.

    A run is of this kind if it has rows of one of `measures` or, if `present` is given, if that function returns True.
    If a run is of several kinds, they are shown in ascending order of `rank`.

    `answer` is the verdict at the top of the page and at the end of the terminal output. `tiles` returns pairs of a
    number and its name, shown at the top of the page together with the manifest entries named in `counts`.
    `unfinished` returns a banner if the run is incomplete, and `following` the next steps. `has_published` adds the
    chapter on published findings after the first section.
    """

    name: str
    measures: tuple[str, ...]
    sections: tuple[Section, ...]
    rank: int = 9
    present: Callable[[ReportData], bool] | None = None
    answer: Callable[[ReportData], str] = lambda data: ""
    tiles: Callable[[ReportData], Iterable[tuple[str, str]]] = lambda data: ()
    counts: tuple[str, ...] = ()
    unfinished: Callable[[ReportData], str | None] = lambda data: None
    following: Facts = lambda data: ()
    has_published: bool = False

    def is_of(self, data: ReportData) -> bool:
        if self.present is not None:
            return self.present(data)
        return bool(data.rows.where(measure=self.measures))
