"""Sections as Markdown, and as lines of a terminal: findings and tables, without the figures."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from layerwise.report.data import ReportData
from layerwise.report.finding import Finding
from layerwise.report.kind import Kind, Part, Pivot, Says, Tabled, in_text
from layerwise.report.text.plain_markdown import bullets, escaped


def markdown_parts(kind: Kind, data: ReportData) -> Iterator[str]:
    """The findings as lists and the tables under their titles, a list or a table at a time."""
    for section in (each.of(kind) for each in kind.sections):
        for part in section.parts_of(data):
            if isinstance(part, Says) and part.markdown:
                yield _listed(part, data)
            elif isinstance(part, Pivot | Tabled):
                for title, table in part.tables(data):
                    named = (title,) if part.title else (section.title, title)
                    yield table.section(", ".join(filter(None, named)))


def terminal_lines(kind: Kind, data: ReportData) -> Iterator[str]:
    """The tables and sentences that a terminal shows, then the answer, then what to do next."""
    written: list[str] = []
    for section in kind.sections:
        written += (line for part in section.of(kind).parts_of(data) for line in _lines(part, data))
    yield from written
    answer = kind.answer(data)
    if answer and not any(answer.startswith(line.removeprefix("- ")) for line in written):
        yield answer
    yield from map(in_text, kind.following(data))


def _lines(part: Part, data: ReportData) -> Iterator[str]:
    if isinstance(part, Says) and part.terminal:
        yield from (f"- {in_text(each)}" for each in part.facts(data))
    elif isinstance(part, Pivot | Tabled) and part.terminal:
        for title, table in part.tables(data):
            yield from ([f"{title}:"] if title else [])
            yield from table.lines()


def _listed(part: Says, data: ReportData) -> str:
    statements = list(part.facts(data))
    findings = [each for each in statements if isinstance(each, Finding)]
    sentences = [each for each in statements if not isinstance(each, Finding)]
    return "\n".join(filter(None, (answered(findings), bullets(sentences))))


def answered(findings: Iterable[Finding]) -> str:
    """Findings as a list: the question, how firm its answer is, and the answer."""
    return "\n".join(
        f"- **{escaped(finding.question)}** ({finding.state}) {escaped(finding.text)}" for finding in findings
    )
