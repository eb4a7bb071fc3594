"""A group of chapters: what one kind of run has to say, and how the page tells whether it has anything to say."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from layerwise.report.chapters.chapter import Chapter
from layerwise.report.data import Evidence

Writer = Callable[[Evidence], Chapter]


@dataclass(frozen=True, slots=True)
class Group:
    """Chapters that belong together, in reading order.

    `present` says whether a run is (also) of this kind: then every chapter of the group is written that has rows.
    `opening` is the paragraph that the page begins with: what was asked, and the words that it is told in. `tiles` are
    numbers and their names for the masthead; `unfinished` is the sentence of the banner when the run was stopped
    half-way, else `None`. `counts` are the numbers of the manifest that the masthead shows too; a group whose tiles say
    what was measured on needs none.
    """

    name: str
    chapters: tuple[Writer, ...]
    present: Callable[[Evidence], bool]
    tiles: Callable[[Evidence], tuple[tuple[str, str], ...]]
    unfinished: Callable[[Evidence], str | None]
    counts: tuple[str, ...] = ("documents", "tokens")
    opening: Callable[[Evidence], str] = lambda evidence: ""
