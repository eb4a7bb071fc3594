"""Write the sections of a page as HTML chapters with figures, tables and findings."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from markupsafe import Markup

from layerwise.page.data import ReportData
from layerwise.page.finding import Finding
from layerwise.page.formatting import label, to_sentence
from layerwise.page.kind import CustomHtml, CustomTable, Kind, Part, Pivot, Section, SideBySide, Text, load_texts
from layerwise.page.marks.mark import Mark, Picture, follow_first
from layerwise.page.markup import html_part
from layerwise.results.rows import Note


@dataclass(frozen=True, slots=True)
class Chapter:
    """A section of the page as HTML. If the run has no content for it, the text `absence` is shown."""

    anchor: str
    title: str
    short: str
    body: tuple[Markup, ...] = ()
    pictures: tuple[Picture, ...] = ()
    absence: str = ""

    def noted(self, notes: Iterable[Note]) -> Chapter:
        parts = (html_part("note", text=to_sentence(each.text)) for each in notes if each.measure == self.anchor)
        return replace(self, body=(*self.body, *parts))


INTERVAL = re.compile(r"([+−×]?\d[\d.,]*(?: [a-z%][a-z %]*?)? \[[^\]]*\])")

STRATEGIES = "Strategies"
"""Title of the legend in which the names of strategies are written in words."""

Piece = Markup | Picture


def write_chapters(kind: Kind, data: ReportData) -> Iterator[Chapter]:
    """Write each section of a kind of run as a chapter of the page."""
    return (write_chapter(section.of(kind), data) for section in kind.sections)


def write_chapter(section: Section, data: ReportData) -> Chapter:
    words = load_texts(section.prose)
    write_note = partial(_note, words, section.anchor)
    pieces = [piece for part in section.parts_of(data) for piece in _write(part, data, write_note)]
    body = [piece for piece in pieces if isinstance(piece, Markup)]
    pictures = tuple(piece for piece in pieces if isinstance(piece, Picture))
    if body and section.anchor in words:
        body.insert(0, html_part("lead", text=words[section.anchor]))
    absence = "" if body else section.missing
    return Chapter(section.anchor, section.title, section.short, tuple(body), pictures, absence)


def _note(words: dict[str, str], anchor: str, name: str) -> str:
    return words.get(f"{anchor}/{name}", name)


def _write(part: Part, data: ReportData, write_note: Callable[[str], str]) -> Iterator[Piece]:
    match part:
        case Text():
            statements = list(part.facts(data))
            findings = [(each, INTERVAL.split(each.answer)) for each in statements if isinstance(each, Finding)]
            sentences = [each for each in statements if not isinstance(each, Finding)]
            if statements:
                body = html_part("statements", findings=findings, sentences=sentences, small=part.small)
                yield html_part("titled", title=part.title, body=body, notes=write_note(part.note), folded=part.folded)
        case Pivot() | CustomTable():
            yield from _write_tables(part, data, write_note(part.note))
        case CustomHtml():
            if drawn := part.draw(data):
                yield html_part("titled", title=part.title, body=drawn, notes=write_note(part.note), folded=False)
        case SideBySide() | Mark():
            marks = part.marks if isinstance(part, SideBySide) else (part,)
            yield from _write_marks(marks, data, write_note, is_wide=isinstance(part, Mark))


def _write_tables(part: Pivot | CustomTable, data: ReportData, notes: str) -> Iterator[Markup]:
    tables = [(title, table.html()) for title, table in part.tables(data)]
    if part.folded and tables:
        inner = [table if len(tables) == 1 else html_part("card", title=title, body=table) for title, table in tables]
        title = part.title or tables[0][0]
        yield html_part("titled", title=title, body=Markup().join(inner), notes=notes, folded=True)
        return
    for at, (title, table) in enumerate(tables, start=1):
        last = notes if at == len(tables) else ""
        yield html_part("titled", title=title, body=table, notes=last, folded=False)


def _write_marks(
    marks: Sequence[Mark], data: ReportData, write_note: Callable[[str], str], *, is_wide: bool
) -> Iterator[Piece]:
    drawn = [(mark, own_pictures) for mark in marks if (own_pictures := list(mark.pictures(data)))]
    pictures = [picture for _, own_pictures in drawn for picture in own_pictures]
    if not pictures:
        return
    first = drawn[0][0]
    if first.legend:
        slots = {first.words(name): slot for name, slot in first.colors(first.rows(data), data).items()}
        names = {name: (slot, label(name) if first.legend == STRATEGIES else name) for name, slot in slots.items()}
        yield html_part("legend", names=names, figures=[picture.name for picture in pictures], noun=first.legend)
    yield from _write_cards(pictures, is_wide=is_wide)
    for mark, _ in drawn:
        if mark.note:
            yield html_part("note", text=write_note(mark.note))


def _write_cards(pictures: Sequence[Picture], *, is_wide: bool) -> Iterator[Piece]:
    """Write figures side by side. If only the first one has controls, it is placed above the others.

    If all have the same controls, only the first one shows them.
    """
    first, *others = pictures
    if others and first.choices and not any(picture.choices for picture in others):
        yield from _write_cards([first], is_wide=is_wide)
        yield from _write_cards(others, is_wide=False)
        return
    if (
        others
        and (first.choices or first.sqrt_scale)
        and len({(each.choices, each.sqrt_scale) for each in pictures}) == 1
    ):
        pictures = follow_first(pictures)
    yield from pictures
    cards = [
        html_part("card", title=each.alternative, body=each.html(), wide=is_wide and not others) for each in pictures
    ]
    yield html_part("grid", cards=cards) if others else cards[0]
