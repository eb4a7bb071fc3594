"""Write the page: chapters, figures, style and script in one HTML file that makes no requests.

`render` is pure: equal rows give equal bytes. If a run is of several kinds, the page has the sections of all of them.
The last chapter is the provenance, which also lists what was not measured.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from importlib.resources import files
from pathlib import Path

from markupsafe import Markup

from layerwise.errors import RunError
from layerwise.page.data import ReportData
from layerwise.page.derived import growth
from layerwise.page.derived.power import describe_text
from layerwise.page.figures.palette import ROLES, SERIES, list_dark_colors
from layerwise.page.formatting import format_number, format_percent, label
from layerwise.page.kind import Kind
from layerwise.page.kinds import present_kinds
from layerwise.page.markup import embedded_json, html_page, html_part
from layerwise.page.sections.training import read_seeds
from layerwise.page.table import Table
from layerwise.page.trained import list_variants
from layerwise.page.writers.findings_page import published_chapter
from layerwise.page.writers.html import Chapter, write_chapters
from layerwise.page.writers.plans import draw_wiring
from layerwise.plan import Plan
from layerwise.results.rows import Score
from layerwise.results.run import write_whole
from layerwise.results.vocabulary import MIN_UNITS

COUNTED = {"window": "maximum tokens per window"}

EMBLEM = "The original model: each row shows what a step reads, colored by the layer that wrote it"
PLOTLY = "plotlyjs/plotly-cartesian.min.js"
"""The build of plotly.js that draws the figures. Its version and license are in the same folder."""


def render(data: ReportData) -> str:
    """Render the report of a run as a self-contained HTML page."""
    manifest, kinds, chapters = data.manifest, present_kinds(data), build_chapters(data)
    pictures = [picture for chapter in chapters for picture in chapter.pictures]
    figures = {picture.name: picture.payload() for picture in pictures}
    return html_page(
        title=data.title,
        colors=dict(zip(("light", "dark"), _colors(), strict=True)),
        style=Markup(_asset("style.css")),
        chapters=chapters,
        emblem=draw_wiring(Plan.identity(data.depth), data.depth, title=EMBLEM) if data.depth else "",
        structure=str(manifest.get("structure") or ""),
        corpus=str(manifest.get("corpus") or "an unnamed corpus"),
        opening=next((text for kind in kinds if (text := kind.answer(data))), ""),
        facts=_facts(data),
        banners=[sentence for kind in kinds if (sentence := kind.unfinished(data))],
        payload=embedded_json({"figures": figures, "swaps": list_dark_colors()}),
        plotly=Markup(_asset(PLOTLY)),
        script=Markup(_asset("script.js")),
    )


def write(path: Path, html: str) -> None:
    """Write a page atomically, or raise `RunError` if the file cannot be written."""
    try:
        write_whole(path, html.encode(errors="backslashreplace"))
    except OSError as error:
        raise RunError(
            f"Cannot write the report to {path}: {error.strerror or error}. Choose a path in a writable folder."
        ) from error


def _facts(data: ReportData) -> dict[str, str]:
    kinds, manifest = present_kinds(data), data.manifest
    counts = dict.fromkeys(key for kind in kinds for key in kind.counts)
    return {
        **({"layers": f"{data.depth}"} if data.depth else {}),
        **{name: value for kind in kinds for value, name in kind.tiles(data)},
        **{
            COUNTED.get(key, key): f"{value:,}"
            for key in counts
            if isinstance(value := manifest.get(key), int) and (key, value) != ("window", 1)
        },
    }


def _colors() -> list[Markup]:
    names = [*ROLES, *(f"series-{slot}" for slot in range(len(SERIES)))]
    pairs = [*ROLES.values(), *SERIES]
    return [
        Markup("".join(f"--{name}:{pair[side]};" for name, pair in zip(names, pairs, strict=True))) for side in (0, 1)
    ]


def _asset(name: str) -> str:
    return files("layerwise.page").joinpath(name).read_text(encoding="utf-8")


def build_chapters(data: ReportData) -> list[Chapter]:
    """Return all chapters that have content (or else the first chapter), and the chapter on provenance."""
    by_anchor: dict[str, Chapter] = {}
    for kind in present_kinds(data):
        for chapter in _chapters(kind, data):
            by_anchor.setdefault(chapter.anchor, chapter.noted(data.notes))
    every = list(by_anchor.values())
    shown = [chapter for chapter in every if chapter.body] or every[:1]
    absent = [chapter for chapter in every if chapter not in shown]
    last = provenance(data).noted(data.notes)
    return [*shown, replace(last, body=(*last.body, html_part("absent", chapters=absent))) if absent else last]


def _chapters(kind: Kind, data: ReportData) -> Iterator[Chapter]:
    first, *rest = write_chapters(kind, data)
    yield first
    if kind.has_published:
        yield published_chapter(data)
    yield from rest


PRETRAINED = {"pretraining", "evaluation", "wiring"}


@cache
def _words(about: str) -> tuple[str, ...]:
    sections = (section.split("\n- ") for section in f"\n{_asset('provenance.md')}".split("\n# "))
    return tuple(" ".join(item.split()) for heading, *items in sections if heading.strip() == about for item in items)


def _name_quantity(row: Score, *, is_repeated: bool) -> str:
    name = label(row.metric)
    return f"{name} ({label(row.section)})" if is_repeated and row.section is not None else name


def provenance(data: ReportData) -> Chapter:
    run = data.rows.where(measure="run")
    times = Counter(row.metric for row in run)
    names = [_name_quantity(row, is_repeated=times[row.metric] > 1) for row in run]
    measured = Table(
        ("quantity", "value"), tuple((name, format_number(row.value)) for name, row in zip(names, run, strict=True))
    )
    method, words = _explained(data)
    body = html_part(
        "provenance",
        sentences=list(describe_text(data)),
        manifest=list(_flattened(data.manifest)),
        measured=measured.html() if run else "",
        method=method,
        level=format_percent(data.level),
        glossary=words,
    )
    return Chapter("provenance", "Provenance", "Provenance", (body,))


def _explained(data: ReportData) -> tuple[Sequence[str], list[tuple[str, str]]]:
    variant_names: Iterable[str] = ()
    if growth.is_growth(data):
        about, variant_names = "growth", growth.list_schedules(data)
    elif "paired" in (kinds := {kind.name for kind in present_kinds(data)}):
        about = "paired"
    elif "timing" in kinds:
        about = "timing"
    elif PRETRAINED & kinds:
        about, variant_names = "pretraining", list_variants(data)
    elif trained := read_seeds(data):
        about, variant_names = "robustness", trained
    else:
        about = "sweep"
    method = list(_words(f"{about}, method"))
    if about == "sweep":
        method[1:1] = (line.format(fewest=MIN_UNITS) for line in _words(f"intervals over {data.units}"))
    variants = dict(_list_terms("variants"))
    described = ((name, variants[name]) for name in variant_names if name in variants)
    terms = "diagnosis" if about == "sweep" and "diagnosis" in kinds and "sweep" not in kinds else about
    return method, [*described, *_list_terms(f"{terms}, glossary")]


def _list_terms(about: str) -> Iterator[tuple[str, str]]:
    return ((word, text) for word, _, text in (line.partition(": ") for line in _words(about)))


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
