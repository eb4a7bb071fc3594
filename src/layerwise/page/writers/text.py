"""Write a run as Markdown and terminal text, with all user-supplied names escaped."""

from __future__ import annotations

from collections.abc import Iterator

from layerwise.page.data import ReportData
from layerwise.page.finding import Finding, Verdict
from layerwise.page.formatting import format_count
from layerwise.page.kind import CustomTable, Kind, Part, Pivot, Text, format_statement
from layerwise.page.kinds import judge_published, present_kinds
from layerwise.page.markup import escape_markdown, format_bullets


def markdown_parts(kind: Kind, data: ReportData) -> Iterator[str]:
    """Yield the findings and tables of a kind of run as Markdown."""
    for section in (each.of(kind) for each in kind.sections):
        for part in section.parts_of(data):
            if isinstance(part, Text):
                yield _listed(part, data)
            elif isinstance(part, Pivot | CustomTable):
                for title, table in part.tables(data):
                    titles = (title,) if part.title else (section.title, title)
                    yield table.section(", ".join(filter(None, titles)))


def terminal_lines(kind: Kind, data: ReportData) -> Iterator[str]:
    """Yield the lines for the terminal: tables, sentences, the answer, and the next steps."""
    lines: list[str] = []
    for section in kind.sections:
        lines += (line for part in section.of(kind).parts_of(data) for line in _lines(part, data))
    answer = kind.answer(data)
    listed = [remove_verdicts(line.removeprefix("- ")) for line in lines]
    plain = remove_verdicts(answer)
    if answer and not any(plain in line or plain.startswith(line) for line in listed):
        lines.append(answer)
    yield from (*lines, *map(format_statement, kind.following(data)))


def remove_verdicts(line: str) -> str:
    """Remove the verdicts that `Finding.statement` adds to answers.

    >>> remove_verdicts("Is B better? No, it is worse (contradicted). All seeds agree.")
    'Is B better? No, it is worse. All seeds agree.'
    """
    for verdict in Verdict:
        line = line.replace(f" ({verdict}).", ".").replace(f"; verdict: {verdict}.", ".")
    return line


def _lines(part: Part, data: ReportData) -> Iterator[str]:
    if not isinstance(part, Text | Pivot | CustomTable):
        return
    columns = not part.folded if part.terminal is None else part.terminal
    if not columns:
        return
    if isinstance(part, Text):
        yield from (f"- {each.statement if isinstance(each, Finding) else each}" for each in part.facts(data))
    else:
        for title, table in part.tables(data):
            yield from ([f"{title}:"] if title else [])
            yield from (table if columns is True else table.first(columns)).lines()


def _listed(part: Text, data: ReportData) -> str:
    statements = list(part.facts(data))
    answered = (
        f"- **{escape_markdown(each.question)}** ({each.verdict or 'no interval'}) {escape_markdown(each.answer)}"
        for each in statements
        if isinstance(each, Finding)
    )
    sentences = format_bullets(each for each in statements if not isinstance(each, Finding))
    return "\n".join(filter(None, (*answered, sentences)))


def markdown(data: ReportData) -> str:
    """Return the published findings and the sections of each kind of run as Markdown."""
    kinds = present_kinds(data)
    texts = [text for kind in kinds for text in markdown_parts(kind, data)]
    sections = (_title(data), _published(data), *(texts or [kinds[0].sections[0].of(kinds[0]).missing]))
    return "\n\n".join(section for section in sections if section) + "\n"


def _title(data: ReportData) -> str:
    model = escape_markdown(data.title or "unnamed model")
    corpus = escape_markdown(str(data.manifest.get("corpus") or "an unnamed corpus"))
    plans = f", {format_count(len(data.records), 'plan')}" if data.records else ""
    size = f"{format_count(data.depth, 'layer')}{plans}, measured" if data.depth else "Measured"
    return f"# {model}\n\n{size} on {corpus}."


def _published(data: ReportData) -> str:
    lines = (
        f"- **{escape_markdown(each.question)}** ({each.verdict}) {escape_markdown(each.summary)}"
        for each in judge_published(data)
    )
    return "\n".join(["## Published findings", "", *listing]) if (listing := list(lines)) else ""
