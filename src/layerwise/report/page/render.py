"""The page: chapters, figures, style and script as one HTML file that needs nothing else and asks nobody.

A content security policy in the file itself forbids every request, so "no network" is enforced by the browser and not
by care. `render` is pure: the same rows give the same bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path

from layerwise.errors import RunError
from layerwise.plan import Plan
from layerwise.report.data import ReportData
from layerwise.report.figures.palette import ROLES, SERIES, swaps
from layerwise.report.kinds import present_kinds
from layerwise.report.page.groups import written
from layerwise.report.text.markup import Safe, element, embedded_json
from layerwise.report.writers.chapter import Chapter
from layerwise.report.writers.plans import details, wiring
from layerwise.results.run import write_whole

POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data: blob:; font-src data:"
)

EMBLEM = "The model as trained: row by row what each step reads, coloured by the layer that wrote it"
PLOTLY = "plotlyjs/plotly-cartesian.min.js"
"""The part of plotly.js that the figures need, as its makers publish it; beside it, which version, and its licence."""


def render(data: ReportData) -> str:
    """The report of a run as one self-contained HTML page."""
    title = f"{data.title or 'layerwise'} · layerwise report"
    return page(title, _masthead(data), written(data), details(data))


def page(title: str, masthead: Safe, chapters: list[Chapter], plans: object = ()) -> str:
    """Chapters under a masthead as one self-contained HTML page; `plans` are what the gallery shows of each plan."""
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", http_equiv="Content-Security-Policy", content=POLICY),
        element("meta", name="color-scheme", content="light dark"),
        element("title", title),
        element("style", Safe(_colours()), Safe(_asset("style.css"))),
    )
    body = element(
        "body",
        element("a", "Skip to the findings", href=f"#{chapters[0].anchor}", class_="visually-hidden skip"),
        _navigation(chapters),
        element(
            "main",
            masthead,
            *(chapter.html(number) for number, chapter in enumerate(chapters, start=1)),
            element("footer", "Made by layerwise. This file is complete in itself and loads nothing."),
        ),
        embedded_json("report-data", _payload(chapters, plans)),
        element("script", Safe(_asset(PLOTLY))),
        element("script", Safe(_asset("script.js"))),
    )
    return f"<!doctype html>\n{element('html', head, body, lang='en')}\n"


def write(path: Path, html: str) -> None:
    """Write a page, whole or not at all: a reader never meets half a report."""
    try:
        write_whole(path, html.encode(errors="backslashreplace"))
    except OSError as error:
        raise RunError(
            f"the report could not be written to {path}: {error.strerror or error}; name a folder that exists"
            " and can be written to"
        ) from error


def _payload(chapters: list[Chapter], plans: object) -> dict[str, object]:
    pictures = [picture for chapter in chapters for picture in chapter.pictures]
    return {
        "figures": {picture.name: picture.payload() for picture in pictures},
        "swaps": swaps(),
        "plans": plans,
    }


def _navigation(chapters: list[Chapter]) -> Safe:
    links = (element("li", element("a", chapter.short, href=f"#{chapter.anchor}")) for chapter in chapters)
    toggle = element(
        "button", "Dark", type="button", id="theme", aria_pressed="false", title="Switch between light and dark"
    )
    return element(
        "nav", element("span", "layerwise", class_="brand"), element("ol", *links), toggle, aria_label="Chapters"
    )


def _masthead(data: ReportData) -> Safe:
    manifest = data.manifest
    model = data.title or "unnamed model"
    structure = _named(manifest, "structure", "")
    corpus = _named(manifest, "corpus", "an unnamed corpus")
    kinds = present_kinds(data)
    counts = dict.fromkeys(key for kind in kinds for key in kind.counts)
    tiles = {
        **({"layers": f"{data.depth}"} if data.depth else {}),
        **{name: value for kind in kinds for value, name in kind.tiles(data)},
        **{key: f"{value:,}" for key in counts if isinstance(value := manifest.get(key), int)},
    }
    banners = (sentence for kind in kinds if (sentence := kind.unfinished(data)))
    facts = (element("div", element("dd", value), element("dt", name)) for name, value in tiles.items())
    emblem = (wiring(Plan.identity(data.depth), data.depth, title=EMBLEM),) if data.depth else ()
    opening = next((text for kind in kinds if (text := kind.answer(data))), "")
    return element(
        "header",
        *emblem,
        element("h1", model),
        element(
            "p",
            *([structure, " · "] if structure not in ("", model) else []),
            "measured on ",
            element("b", corpus),
            class_="on",
        ),
        *((element("p", opening, class_="opening"),) if opening else ()),
        element("dl", *facts, class_="facts"),
        *(element("p", sentence, class_="banner", role="status") for sentence in banners),
    )


def _named(manifest: Mapping[str, object], key: str, otherwise: str) -> str:
    value = manifest.get(key)
    return str(value) if value else otherwise


def _colours() -> str:
    """The palette as custom properties: light, dark by preference, dark by choice."""
    names = [*ROLES, *(f"series-{slot}" for slot in range(len(SERIES)))]
    pairs = [*ROLES.values(), *SERIES]
    light, dark = (
        "".join(f"--{name}:{pair[side]};" for name, pair in zip(names, pairs, strict=True)) for side in (0, 1)
    )
    return (
        f":root{{color-scheme:light;{light}}}"
        f'@media screen{{:root[data-theme="dark"]{{color-scheme:dark;{dark}}}}}'
        "@media screen and (prefers-color-scheme:dark)"
        f'{{:root:not([data-theme="light"]){{color-scheme:dark;{dark}}}}}'
    )


def _asset(name: str) -> str:
    return files("layerwise.report").joinpath(name).read_text(encoding="utf-8")
