"""The tables of a kind of run on the page."""

from layerwise.page import ReportData
from layerwise.page.kind import CustomTable, Kind, Pivot


def tables(kind: Kind, data: ReportData, title: str) -> dict[str, tuple[tuple[str, ...], ...]]:
    parts = [part for section in kind.sections for part in section.of(kind).parts_of(data)]
    (part,) = (each for each in parts if isinstance(each, Pivot | CustomTable) and title in (each.title, each.name))
    return {name: (table.head, *table.body) for name, table in part.tables(data)}


def table(kind: Kind, data: ReportData, title: str) -> tuple[tuple[str, ...], ...]:
    ((_, lines),) = tables(kind, data, title).items()
    return lines
