"""One chapter: an anchor, a title, what it says, and the pictures that stand in it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from layerwise.report.figures.palette import depth_colour
from layerwise.report.marks.mark import Picture
from layerwise.report.text.markup import Safe, element
from layerwise.report.text.wording import label, sentence
from layerwise.results.rows import Note


@dataclass(frozen=True, slots=True)
class Chapter:
    """A section of the page. `anchor` is the measure it is about, where there is one; `short` its name in the menu."""

    anchor: str
    title: str
    short: str
    body: tuple[Safe, ...] = ()
    pictures: tuple[Picture, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether it says no more than that its rows are missing."""
        return all(isinstance(piece, Missing) for piece in self.body)

    def missing(self, text: str) -> Chapter:
        """The chapter that says no more than that its rows are missing."""
        return replace(self, body=(Missing(text),))

    def noted(self, notes: Iterable[Note]) -> Chapter:
        """The chapter with what its measure had to leave out, in words, at its end."""
        own = [note(sentence(each.text)) for each in notes if each.measure == self.anchor]
        return replace(self, body=(*self.body, *own)) if own else self

    def html(self, number: int) -> Safe:
        """The section, numbered."""
        heading = element("h2", element("span", str(number), class_="number-mark"), f" {self.title}")
        return element("section", heading, *self.body, id=self.anchor)


def lead(text: str) -> Safe:
    """The sentence under a chapter's title: how to read what follows."""
    return element("p", text, class_="lead")


def card(title: str | None, *children: Safe, wide: bool = False) -> Safe:
    """A figure, or whatever belongs together, on a card of its own."""
    heading = (element("h4", title),) if title else ()
    return element("div", *heading, *children, class_="card wide" if wide else "card")


def note(*children: str) -> Safe:
    """Small print under a figure."""
    return element("p", *children, class_="note")


class Missing(Safe):
    """The one line of a chapter that has nothing to show; `text` is what it says."""

    __slots__ = ("text",)
    text: str

    def __new__(cls, text: str) -> Missing:
        line = super().__new__(cls, element("p", text, class_="missing"))
        line.text = text
        return line


def folded(summary: str, *children: Safe) -> Safe:
    """What is opened by pressing its summary."""
    return element("details", element("summary", summary), *children)


def legend(slots: dict[str, int], figures: tuple[str, ...], *, noun: str = "Strategies") -> Safe:
    """Return buttons that hide or show each strategy (or other `noun`) in all `figures`, with its color."""
    chips = [
        element(
            "button",
            element("i", style=f"--swatch:var(--series-{slot})"),
            label(strategy) if noun == "Strategies" else strategy,
            type="button",
            aria_pressed="true",
            data_group=strategy,
        )
        for strategy, slot in slots.items()
    ]
    return element("div", *chips, class_="legend", data_figures=" ".join(figures), role="group", aria_label=noun)


def depth_key(depth: int, *more: Safe) -> Safe:
    """The colours of the layers from the first to the last, and what else a picture's colours mean."""
    swatches = [element("i", style=f"background:{depth_colour(layer, depth)}") for layer in range(depth)]
    return element(
        "p",
        element("span", "layer 0"),
        element("span", *swatches, class_="ramp", aria_hidden="true"),
        element("span", f"layer {depth - 1}"),
        *more,
        class_="key",
    )
