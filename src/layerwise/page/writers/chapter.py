"""One chapter: an anchor, a title, its parts as HTML, and the pictures in it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from markupsafe import Markup

from layerwise.page.marks.mark import Picture
from layerwise.page.text.markup import html_part
from layerwise.page.text.wording import sentence
from layerwise.results.rows import Note


@dataclass(frozen=True, slots=True)
class Chapter:
    """A section of the page.

    `anchor` is the measure it is about, where there is one, `short` its name in the menu, and `absence` the line shown
    where the run has nothing for it.
    """

    anchor: str
    title: str
    short: str
    body: tuple[Markup, ...] = ()
    pictures: tuple[Picture, ...] = ()
    absence: str = ""

    def noted(self, notes: Iterable[Note]) -> Chapter:
        own = (html_part("note", text=sentence(each.text)) for each in notes if each.measure == self.anchor)
        return replace(self, body=(*self.body, *own))
