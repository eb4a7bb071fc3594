"""The page: chapters, figures, style and script as one HTML file that makes no requests.

A content security policy in the file forbids them. `render` is pure: the same rows give the same bytes. A run may be of
several kinds: the page has the sections of each, then the provenance, which lists what was not measured.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from importlib.resources import files
from pathlib import Path

from layerwise.errors import RunError
from layerwise.page.data import ReportData
from layerwise.page.derived import growth
from layerwise.page.derived.power import amount_of_text
from layerwise.page.figures.palette import ROLES, SERIES, swaps
from layerwise.page.kind import Kind
from layerwise.page.kinds import present_kinds
from layerwise.page.sections.training import seeds_of
from layerwise.page.text.markup import Safe, element, embedded_json
from layerwise.page.text.number_format import percent, tidy
from layerwise.page.text.table import Table
from layerwise.page.text.wording import label
from layerwise.page.trained import arms
from layerwise.page.writers.chapter import Chapter, Missing, lead
from layerwise.page.writers.findings_page import published_chapter
from layerwise.page.writers.html import chapters
from layerwise.page.writers.plans import wiring
from layerwise.plan import Plan
from layerwise.results.run import write_whole
from layerwise.results.vocabulary import FEWEST_UNITS

POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data: blob:; font-src data:"
)

COUNTED = {"window": "tokens per window, at most"}
"""The heading of a number of the manifest, if it is not its name."""

EMBLEM = "The model as trained: row by row what each step reads, coloured by the layer that wrote it"
PLOTLY = "plotlyjs/plotly-cartesian.min.js"
"""The part of plotly.js that the figures need, as its makers publish it; beside it, which version, and its licence."""


def render(data: ReportData) -> str:
    """The report of a run as one self-contained HTML page."""
    chapters = written(data)
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", http_equiv="Content-Security-Policy", content=POLICY),
        element("meta", name="color-scheme", content="light dark"),
        element("title", f"{data.title or 'layerwise'} · layerwise report"),
        element("style", Safe(_colours()), Safe(_asset("style.css"))),
    )
    body = element(
        "body",
        element("a", "Skip to the findings", href=f"#{chapters[0].anchor}", class_="visually-hidden skip"),
        _navigation(chapters),
        element(
            "main",
            _masthead(data),
            *(chapter.html(number) for number, chapter in enumerate(chapters, start=1)),
            element("footer", "Made by layerwise. This file is complete in itself and loads nothing."),
        ),
        embedded_json("report-data", _payload(chapters)),
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


def _payload(chapters: list[Chapter]) -> dict[str, object]:
    pictures = [picture for chapter in chapters for picture in chapter.pictures]
    return {
        "figures": {picture.name: picture.payload() for picture in pictures},
        "swaps": swaps(),
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
    structure = str(manifest.get("structure") or "")
    corpus = str(manifest.get("corpus") or "an unnamed corpus")
    kinds = present_kinds(data)
    counts = dict.fromkeys(key for kind in kinds for key in kind.counts)
    tiles = {
        **({"layers": f"{data.depth}"} if data.depth else {}),
        **{name: value for kind in kinds for value, name in kind.tiles(data)},
        **{
            COUNTED.get(key, key): f"{value:,}"
            for key in counts
            if isinstance(value := manifest.get(key), int) and (key, value) != ("window", 1)
        },
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


def _colours() -> str:
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
    return files("layerwise.page").joinpath(name).read_text(encoding="utf-8")


def written(data: ReportData) -> list[Chapter]:
    """Return all chapters with content, each anchor once, then the provenance; an empty run keeps its first chapter."""
    by_anchor: dict[str, Chapter] = {}
    for kind in present_kinds(data):
        for chapter in _chapters(kind, data):
            by_anchor.setdefault(chapter.anchor, chapter.noted(data.notes))
    every = list(by_anchor.values())
    kept = [chapter for chapter in every if not chapter.is_empty] or every[:1]
    absent = [chapter for chapter in every if chapter not in kept]
    return [*kept, _with_absent(provenance(data).noted(data.notes), absent)]


def _chapters(kind: Kind, data: ReportData) -> Iterator[Chapter]:
    first, *rest = chapters(kind, data)
    yield first
    if kind.has_published:
        yield published_chapter(data)
    yield from rest


def _with_absent(last: Chapter, absent: Sequence[Chapter]) -> Chapter:
    absences = {chapter.title: piece.text for chapter in absent for piece in chapter.body if isinstance(piece, Missing)}
    lines = (element("li", element("b", title), ": ", text) for title, text in absences.items())
    listed = element("div", element("h3", "Not in this run"), element("ul", *lines))
    return replace(last, body=(*last.body, listed)) if absences else last


PRETRAINED = {"pretraining", "evaluation", "wiring"}
"""The kinds of run that are about models pre-trained in several wirings."""


@cache
def _words(about: str) -> tuple[str, ...]:
    sections = (section.split("\n- ") for section in f"\n{_asset('provenance.md')}".split("\n# "))
    return tuple(" ".join(item.split()) for heading, *items in sections if heading.strip() == about for item in items)


def provenance(data: ReportData) -> Chapter:
    manifest = dict(_flattened(data.manifest))
    shown = (
        element("dl", *_pairs(manifest.items()), class_="manifest") if manifest else Missing("The run has no manifest.")
    )
    run = data.rows.where(measure="run")
    measured = Table(("quantity", "value"), tuple((label(s.metric), tidy(s.value)) for s in run))
    lines, words = _explained(data)
    method = element("ul", *(element("li", line) for line in lines))
    level = element("p", f"Significance level: {percent(data.level)}.")
    body = (
        lead("What ran, on what, and how the numbers were made."),
        *(lead(sentence) for sentence in amount_of_text(data)),
        element("div", element("h3", "Manifest"), shown),
        *((element("div", element("h3", "The run"), measured.html()),) if run else ()),
        element("div", element("h3", "How intervals are computed"), method, level),
        element(
            "div",
            element("h3", "Glossary"),
            element("dl", *_pairs(words), class_="glossary"),
        ),
    )
    return Chapter("provenance", "Provenance", "Provenance", body)


def _explained(data: ReportData) -> tuple[Sequence[str], list[tuple[str, str]]]:
    named: Iterable[str] = ()
    if growth.is_growth(data):
        about, named = "growth", growth.arms(data)
    elif "paired" in (kinds := {kind.name for kind in present_kinds(data)}):
        about = "paired"
    elif PRETRAINED & kinds:
        about, named = "pretraining", arms(data)
    elif trained := seeds_of(data):
        about, named = "robustness", trained
    else:
        about = "sweep"
    method = list(_words(f"{about}, method"))
    if about == "sweep":
        method[1:1] = (line.format(fewest=FEWEST_UNITS) for line in _words(f"intervals over {data.units}"))
    of_arms = dict(_meanings("arms"))
    return method, [*((arm, of_arms[arm]) for arm in named if arm in of_arms), *_meanings(f"{about}, glossary")]


def _meanings(about: str) -> Iterator[tuple[str, str]]:
    return ((word, text) for word, _, text in (line.partition(": ") for line in _words(about)))


def _pairs(rows: Iterable[tuple[str, str]]) -> Iterator[Safe]:
    for name, text in rows:
        yield element("div", element("dt", name), element("dd", text))


def _flattened(value: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, str]]:
    for key, inner in value.items():
        name = f"{prefix}{key}"
        if isinstance(inner, Mapping):
            yield from _flattened(inner, f"{name}.")
        elif isinstance(inner, list | tuple):
            words = [str(word) for word in inner]
            yield name, shlex.join(words) if key == "command" else ", ".join(words)
        elif inner is not None:
            yield name, str(inner)
