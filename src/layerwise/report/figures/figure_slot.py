"""A slot on the page where a figure is drawn, with the choices that switch it: task, family, metric.

Every variant is a whole figure, built beforehand; the script only shows the one that is chosen. So a choice cannot
compute anything the run did not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from layerwise.report.figures.figure import Figure
from layerwise.report.text.markup import Safe, element

Option = TypeVar("Option")
PILLS = 7  # more options than this become a menu


@dataclass(frozen=True, slots=True)
class Choice:
    """A question beside a figure and its options, the first one shown at the start."""

    question: str
    options: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Picture:
    """A named figure: `variants` maps one option index per choice to the figure; a lone figure has the key `()`.

    `rooted` offers a square-root scale on the vertical axis, for effects of very different size, and `bent` shows it
    first. A picture with a `leader` has no controls of its own: it follows those of the picture so named.
    """

    name: str
    alternative: str
    variants: Mapping[tuple[int, ...], Figure]
    choices: tuple[Choice, ...] = ()
    rooted: bool = False
    bent: bool = False
    leader: str | None = None

    def controls(self) -> Safe:
        """The choices as pills or menus; nothing for a follower."""
        shown = [
            _choice(self.name, index, choice) for index, choice in enumerate(self.choices) if len(choice.options) > 1
        ]
        shown += [_scale(self.name, self.bent)] if self.rooted else []
        return element("div", *shown, class_="controls") if shown and self.leader is None else Safe("")

    def html(self) -> Safe:
        """The empty slot that the script draws into, and the line it shows for a variant that does not exist."""
        height = max(figure.layout["height"] for figure in self.variants.values())
        plot = element(
            "div",
            class_="plot",
            data_figure=self.name,
            role="img",
            aria_label=self.alternative,
            style=f"min-height:{height}px",
        )
        return element("figure", plot, element("p", class_="absent", hidden=True))

    def payload(self) -> dict[str, Any]:
        """What the script needs, every variant as plotly.js takes it."""
        return {
            "choices": len(self.choices),
            "leader": self.leader or self.name,
            "variants": {".".join(map(str, key)): figure.payload() for key, figure in self.variants.items()},
        }


def variants(options: Iterable[Option], draw: Callable[[Option], Figure | None]) -> dict[tuple[int, ...], Figure]:
    """The figure of every option of one choice that has any, by the position of the option."""
    drawn = ((at, draw(option)) for at, option in enumerate(options))
    return {(at,): figure for at, figure in drawn if figure is not None}


def led(pictures: Mapping[str, Picture]) -> dict[str, Picture]:
    """Titled pictures of which the first has the controls and the others follow it; those without a figure are left
    out."""
    drawn = {title: picture for title, picture in pictures.items() if picture.variants}
    first = next(iter(drawn.values()), None)
    return {
        title: picture if first is None or picture is first else replace(picture, leader=first.name)
        for title, picture in drawn.items()
    }


def _choice(name: str, index: int, choice: Choice) -> Safe:
    if len(choice.options) > PILLS:
        options = (element("option", text, value=str(at)) for at, text in enumerate(choice.options))
        menu = element("select", *options, data_figure=name, data_choice=str(index))
        return element("label", f"{choice.question} ", menu, class_="menu")
    return _pills(choice.question, f"{name}-{index}", choice.options, {"data_figure": name, "data_choice": str(index)})


def _scale(name: str, bent: bool) -> Safe:
    data = {"data_figure": name, "data_scale": "y"}
    return _pills("Scale", f"{name}-scale", ("linear", "square root"), data, chosen=int(bent))


def _pills(question: str, group: str, options: Sequence[str], data: Mapping[str, str], chosen: int = 0) -> Safe:
    pills = [
        element(
            "label",
            element("input", type="radio", name=group, value=str(at), checked=at == chosen, **data),
            element("span", text),
        )
        for at, text in enumerate(options)
    ]
    return element("fieldset", element("legend", question), *pills, class_="pills")
