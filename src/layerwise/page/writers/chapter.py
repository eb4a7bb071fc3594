"""One chapter: an anchor, a title, what it says, and the pictures that stand in it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from layerwise.page.figures.palette import depth_colour
from layerwise.page.marks.mark import Picture
from layerwise.page.text.markup import Safe, element
from layerwise.page.text.wording import label, sentence
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
        return all(isinstance(piece, Missing) for piece in self.body)

    def missing(self, text: str) -> Chapter:
        return replace(self, body=(Missing(text),))

    def noted(self, notes: Iterable[Note]) -> Chapter:
        own = [note(sentence(each.text)) for each in notes if each.measure == self.anchor]
        return replace(self, body=(*self.body, *own)) if own else self

    def html(self, number: int) -> Safe:
        heading = element("h2", element("span", str(number), class_="number-mark"), f" {self.title}")
        return element("section", heading, *self.body, id=self.anchor)


def lead(text: str) -> Safe:
    return element("p", text, class_="lead")


def card(title: str | None, *children: Safe, wide: bool = False) -> Safe:
    heading = (element("h4", title),) if title else ()
    return element("div", *heading, *children, class_="card wide" if wide else "card")


def note(*children: str) -> Safe:
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
    return element("details", element("summary", summary), *children)


def legend(slots: dict[str, int], figures: tuple[str, ...], *, noun: str = "Strategies") -> Safe:
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
    swatches = [element("i", style=f"background:{depth_colour(layer, depth)}") for layer in range(depth)]
    return element(
        "p",
        element("span", "layer 0"),
        element("span", *swatches, class_="ramp", aria_hidden="true"),
        element("span", f"layer {depth - 1}"),
        *more,
        class_="key",
    )
