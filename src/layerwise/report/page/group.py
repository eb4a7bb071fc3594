"""A group of chapters: what one kind of run has to say, and how the page tells whether it has anything to say."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

from layerwise.report.evidence import Evidence
from layerwise.report.page.chapter import Chapter
from layerwise.report.page.wording import counted, listed

Writer = Callable[[Evidence], Chapter]
TextWriter = Callable[[Evidence], Iterable[str]]
STOPPED = "the run was interrupted, or is still going. Resume it and write the report again."


@dataclass(frozen=True, slots=True)
class ChapterGroup:
    """Chapters that belong together, in reading order.

    `present` says whether a run is (also) of this kind: then every chapter of the group is written that has rows.
    `opening` is the paragraph that the page begins with: the question, and the words of the answer. `tiles` are
    numbers and their names for the masthead; `unfinished` is the sentence of the banner when the run was stopped
    half-way, else `None`. `counts` are the numbers of the manifest that the masthead shows too; a group whose tiles say
    what was measured on needs none.
    `markdown` writes the same results as text and tables, a paragraph, a list or a table under its heading at a time.
    """

    name: str
    chapters: tuple[Writer, ...]
    markdown: tuple[TextWriter, ...]
    present: Callable[[Evidence], bool]
    tiles: Callable[[Evidence], tuple[tuple[str, str], ...]]
    unfinished: Callable[[Evidence], str | None] = lambda evidence: None
    counts: tuple[str, ...] = ()
    opening: Callable[[Evidence], str] = lambda evidence: ""


def arm_tiles(arms: Collection[str], seeds: Mapping[str, Collection[int]]) -> tuple[tuple[str, str], ...]:
    """How many arms a run has, and the most seeds that any of them was trained with."""
    most = max((len(seeds.get(arm, ())) for arm in arms), default=0)
    return ((f"{len(arms):,}", "arms"), *(((f"{most:,}", "seeds"),) if most else ()))


def incomplete(*parts: tuple[Collection[str], str]) -> str | None:
    """The banner that names what is not complete, each kind with its noun; `None` where nothing is missing."""
    named = [(names, noun) for names, noun in parts if names]
    if not named:
        return None
    what = listed([f"{counted(len(names), noun)} ({listed(list(names))})" for names, noun in named])
    verb = "is" if sum(len(names) for names, _ in named) == 1 else "are"
    return f"{what} {verb} not complete: {STOPPED}"
