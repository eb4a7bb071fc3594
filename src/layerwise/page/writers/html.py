"""Sections as chapters of the page."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

from layerwise.page.data import ReportData
from layerwise.page.finding import Finding, Verdict
from layerwise.page.kind import Beside, Drawn, Kind, Part, Pivot, Says, Section, Tabled, prose
from layerwise.page.marks.mark import Mark, Picture, followed
from layerwise.page.text.markup import Safe, element, measured
from layerwise.page.writers.chapter import Chapter, card, folded, lead, legend, note

INTERVAL = re.compile(r"([+−×]?\d[\d.,]*(?: [a-z%][a-z %]*?)? \[[^\]]*\])")
"""A number, its unit, and its interval behind it."""


def badge(verdict: Verdict | None) -> Safe:
    """Return a verdict as a colored word; a description has none to decide it."""
    text, style = ("no interval", "described") if verdict is None else (verdict.value, verdict.style)
    return element("span", text, class_=f"badge {style}")


def answer(finding: Finding) -> Safe:
    pieces = (measured(piece) if at % 2 else piece for at, piece in enumerate(INTERVAL.split(finding.answer)))
    return element("li", element("h3", finding.question, " ", badge(finding.verdict)), element("p", *pieces))


def chapters(kind: Kind, data: ReportData) -> Iterator[Chapter]:
    """Every section of a kind, those whose rows are missing as the line that says so."""
    for section in kind.sections:
        yield chapter(kind, section, data)


def chapter(kind: Kind, section: Section, data: ReportData) -> Chapter:
    section = section.of(kind)
    named = Chapter(section.anchor, section.title, section.short)
    if not section.present(data):
        return named.missing(section.missing)
    writer = _Writer(prose(section.prose), section.anchor, data)
    opened = len(writer.body)
    for part in section.parts_of(data):
        writer.write(part)
    if len(writer.body) == opened:
        return named.missing(section.missing)
    return replace(named, body=tuple(writer.body), pictures=tuple(writer.pictures))


class _Writer:
    def __init__(self, words: dict[str, str], anchor: str, data: ReportData) -> None:
        self.words, self.anchor, self.data = words, anchor, data
        self.body: list[Safe] = [lead(words[anchor])] if anchor in words else []
        self.pictures: list[Picture] = []

    def write(self, part: Part) -> None:
        match part:
            case Says():
                self._says(part)
            case Pivot() | Tabled():
                self._tables(part)
            case Beside():
                self._marks(part.marks)
            case Drawn():
                if drawn := list(part.draw(self.data)):
                    heading = [element("h3", part.title)] if part.title else []
                    self.body += [*heading, *drawn, *self._note(part.note)]
            case Mark():
                self._marks((part,), wide=True)

    def _says(self, part: Says) -> None:
        statements = list(part.facts(self.data))
        findings = [answer(each) for each in statements if isinstance(each, Finding)]
        sentences = [each for each in statements if not isinstance(each, Finding)]
        shown = [element("ol", *findings, class_="findings answers")] if findings else []
        if sentences and part.small:
            shown += map(note, sentences)
        elif sentences:
            shown.append(element("ul", *(element("li", text) for text in sentences), class_="fates"))
        if shown and part.folded:
            self.body.append(folded(part.title, *shown, *self._note(part.note)))
        elif shown:
            heading = [element("h3", part.title)] if part.title else []
            self.body += [*heading, *shown, *self._note(part.note)]

    def _tables(self, part: Pivot | Tabled) -> None:
        tables = [(title, table.html()) for title, table in part.tables(self.data)]
        if part.folded and tables:
            inner = [table if len(tables) == 1 else card(title, table) for title, table in tables]
            self.body.append(folded(part.title or tables[0][0], *inner, *self._note(part.note)))
            return
        for title, table in tables:
            self.body += [*([element("h3", title)] if title else []), table]
        self.body += self._note(part.note) if tables else ()

    def _marks(self, marks: Iterable[Mark], *, wide: bool = False) -> None:
        shown = [(mark, own) for mark in marks if (own := list(mark.pictures(self.data)))]
        pictures = [picture for _, own in shown for picture in own]
        if not shown:
            return
        first = shown[0][0]
        if first.legend:
            named = {first.words(name): slot for name, slot in first.colours(first.rows(self.data), self.data).items()}
            self.body.append(legend(named, tuple(picture.name for picture in pictures), noun=first.legend))
        self._cards(pictures, wide=wide)
        for mark, _ in shown:
            self.body += self._note(mark.note)

    def _cards(self, pictures: list[Picture], *, wide: bool) -> None:
        """Return cards side by side; with shared choices or scale the first leads, above if it alone has choices."""
        if len(pictures) > 1 and pictures[0].choices and not any(picture.choices for picture in pictures[1:]):
            self._cards(pictures[:1], wide=wide)
            self._cards(pictures[1:], wide=False)
            return
        alike = len({(picture.choices, picture.rooted) for picture in pictures}) == 1
        if len(pictures) > 1 and alike and (pictures[0].choices or pictures[0].rooted):
            pictures = followed(pictures)
        self.pictures += pictures
        shown = [
            card(picture.alternative, picture.controls(), picture.html(), wide=wide and len(pictures) == 1)
            for picture in pictures
        ]
        self.body += (
            shown if len(shown) == 1 else [element("div", *shown, class_="grid pair" if len(shown) == 2 else "grid")]
        )

    def _note(self, name: str) -> list[Safe]:
        return [note(self.words.get(f"{self.anchor}/{name}", name))] if name else []
