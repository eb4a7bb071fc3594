"""The page: chapters, figures, style and script as one HTML file that needs nothing else and asks nobody.

A content security policy in the file itself forbids every request, so "no network" is enforced by the browser and not
by care. `render` is pure: the same rows give the same bytes.

A run may be of several kinds at once, a sweep and a search. The page writes the sections of every kind and then the
provenance. A section whose rows are missing is left out; the provenance lists what those had to say, so that a reader
learns what was not measured. A new kind of run is one line in `layerwise.report.kinds`.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

from layerwise.errors import RunError
from layerwise.plan import Plan
from layerwise.report.arms import ARMS
from layerwise.report.data import ReportData
from layerwise.report.derived import growth
from layerwise.report.figures.palette import ROLES, SERIES, swaps
from layerwise.report.kind import Kind
from layerwise.report.kinds import present_kinds
from layerwise.report.kinds.evaluation import EVALUATION
from layerwise.report.kinds.layer_weights_study import STUDY_KIND
from layerwise.report.kinds.pretraining import PRETRAINING
from layerwise.report.kinds.training import seeds_of
from layerwise.report.kinds.wiring import WIRING
from layerwise.report.text.markup import Safe, element, embedded_json
from layerwise.report.text.number_format import percent, tidy
from layerwise.report.text.table import Table
from layerwise.report.text.wording import label
from layerwise.report.trained import arms
from layerwise.report.writers.chapter import Chapter, Missing, lead
from layerwise.report.writers.claims_page import claims
from layerwise.report.writers.html import chapters
from layerwise.report.writers.plans import details, wiring
from layerwise.results.run import write_whole
from layerwise.results.vocabulary import FEWEST_UNITS

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


def written(data: ReportData) -> list[Chapter]:
    """Every chapter of every kind that has something to say, each anchor once, and the provenance at the end.

    A run that has no rows at all keeps the first of its chapters, which says so.
    """
    by_anchor: dict[str, Chapter] = {}
    for kind in present_kinds(data):
        for chapter in _chapters(kind, data):
            by_anchor.setdefault(chapter.anchor, chapter.noted(data.notes))
    every = list(by_anchor.values())
    kept = [chapter for chapter in every if not chapter.is_empty] or every[:1]
    absent = [chapter for chapter in every if chapter not in kept]
    return [*kept, _with_absent(provenance(data).noted(data.notes), absent)]


def _chapters(kind: Kind, data: ReportData) -> Iterator[Chapter]:
    """The sections of a kind, and after the first of them what became of the published claims where it decides any."""
    first, *rest = chapters(kind, data)
    yield first
    if kind.claims:
        yield claims(data)
    yield from rest


def _with_absent(last: Chapter, absent: Sequence[Chapter]) -> Chapter:
    """The provenance with what this run did not measure, a line for each chapter that is left out."""
    absences = {chapter.title: piece.text for chapter in absent for piece in chapter.body if isinstance(piece, Missing)}
    lines = (element("li", element("b", title), ": ", text) for title, text in absences.items())
    listed = element("div", element("h3", "Not in this run"), element("ul", *lines))
    return replace(last, body=(*last.body, listed)) if absences else last


METHOD = (
    "Effects are paired differences to the untouched model on the same text, in nats per scored token.",
    "Adjusted p-values are corrected over their family of plans (Holm), so a verdict allows for how many were tried.",
    "The minimum detectable effect (mde) is the smallest true effect that this much text would show.",
    "Where no effect was found the verdict names that size: absence of evidence, with its limit.",
)
RESAMPLED = {
    "documents": "Intervals are paired bootstraps over documents: whole documents are drawn again, with replacement;"
    f" of a task with fewer than {FEWEST_UNITS} documents its windows are.",
    "windows": f"Intervals are paired bootstraps over windows, since the text has fewer than {FEWEST_UNITS} documents:"
    " they say what other windows of these documents would give, and not what other documents would.",
}
"""How the intervals of a sweep and of a diagnosis are made, by what is resampled."""

ROBUST_METHOD = (
    "An arm is one way of training; with several seeds its interval is Student's t over the seeds.",
    "A single model, or a single seed, has a Wilson interval over its examples.",
    "Differences to the baseline are paired: the same examples, in the same orders.",
    "Random orders are drawn anew for every batch, from a seed, and are the same for every arm.",
    "Draws that happened to be the order of training are left out of “random order” and counted apart.",
    "Checkpoints are selected on one split of the examples and reported on another.",
)
GROWTH_METHOD = (
    "An arm is one schedule of training; with several seeds its interval is Student's t over the seeds.",
    "Differences are taken seed for seed: a seed decides the first weights and the order of the text for every arm.",
    "Uniform's loss at a cost is read, in each seed, off its fully decayed trainings of several lengths.",
    "Adjusted p-values are corrected over the arms that have the same metric (Holm).",
    "FLOPs: forward pass, input gradient and weight gradient one each; a frozen layer has no weight gradient, and"
    " below the lowest thing that learns there is no input gradient.",
    "Seconds are the median step of each phase times its steps; validating and saving are left out.",
)
PRETRAINED_KINDS = (STUDY_KIND, PRETRAINING, EVALUATION, WIRING)
PRETRAINED_METHOD = (
    "An arm is one wiring of one architecture; with several seeds its interval is Student's t over the seeds.",
    "One seed has an interval over held-out documents, over pairs drawn again within each paradigm, or over examples.",
    "Differences of arms are taken seed for seed; their intervals and p are over seeds.",
    "Agreement across seeds is compared with shuffles of the sources of whole seeds, one-sided.",
)
GLOSSARY = (
    ("plan", "which layers run, in which order and mixture, as text: 0-13 (14|15|16|17)*3 18-31"),
    ("Δ NLL", "negative log-likelihood under a plan minus that of the untouched model, nats per token"),
    ("affected", "number of layers that a strategy touches"),
    ("skip", "the affected layers are left out"),
    ("reverse", "the affected layers run in the opposite order"),
    ("random", "the affected layers run in a drawn order; several draws"),
    ("middle repeat", "the middle layer runs in place of every affected layer"),
    ("parallel", "the affected layers read the same input and their outputs are averaged"),
    ("looped parallel", "the same, the average fed back several times"),
    ("layer evaluations", "how many times any layer runs: the work"),
    ("stages", "how many layers run one after another when parallel ones run at once: the waiting"),
    ("exact match", "share of answers whose every token is the model's first choice"),
    ("nat", "the unit of a loss: a token of probability p costs -ln p nats; 0.69 nats more is half as likely"),
    ("sink token", "a first token that takes most attention and has a huge norm; it makes states look alike"),
    ("CKA", "centred kernel alignment, a similarity that ignores rotation and scale; unbiased, by minibatches"),
    ("wiring", "the matrix A in x_j = sum A[j,i] d_i: what each step reads of what was written before it"),
)
ROBUST_GLOSSARY = (
    ("in order", "the layers run as they were trained before any of this: 0, 1, 2, …"),
    ("in random order", "the layers run in an order drawn at random, every layer once"),
    ("layers kept", "so many layers run, the others are left out; which ones is the rule: first, last, even, random"),
    ("merged", "a model whose every layer comes from another model of the same arm; no weight changes"),
    ("own depth", "merged so that layer 5 of one model stands only where layer 5 of another stood"),
    ("ensemble", "the outputs of several models, averaged"),
    ("top-5", "share of images whose class is among the five first choices"),
    ("chance", "what a model gets that knows nothing: the largest class, or a uniform guess of the next token"),
)

PRETRAINED_GLOSSARY = (
    ("layer weights", "alpha: how much of each earlier state a layer reads; source 0 is the embedding"),
    ("held-out loss", "negative log-likelihood of masked tokens of documents not trained on, nats per token"),
    ("minimal pair", "two sentences that differ in one point, of which one is right"),
    ("paradigm, phenomenon", "minimal pairs of one pattern, and the patterns of one matter of grammar"),
    ("coverage", "the share of a suite's words that the tokenizer has no unknown pieces in"),
    ("mcc", "Matthews' correlation of answers and labels: 1 is perfect, 0 is chance"),
    ("chance", "what guessing gives: a half of minimal pairs, else what the commonest label scores"),
    ("seed_agreement", "mean rank correlation of the layer weights of two seeds, over rows of at least three sources"),
)
GROWTH_GLOSSARY = (
    ("held-out loss", "negative log-likelihood per token of documents neither trained nor chosen on, nats"),
    ("share of full cost", "what a layer does of forward pass, input gradient and weight gradient in a phase"),
    ("at equal FLOPs, tokens, seconds", "uniform's loss where it has spent what the arm has"),
    ("frontier", "the ends of uniform's trainings of several lengths, every one decayed to zero"),
    ("detectable above", "the difference that as many seeds would have found in four of five cases"),
)


def provenance(data: ReportData) -> Chapter:
    """Everything needed to run it again, and to read it right."""
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


def _explained(data: ReportData) -> tuple[tuple[str, ...], tuple[tuple[str, str], ...]]:
    """How the intervals of this kind of run are made, and its words: its own arms first."""
    if growth.is_growth(data):
        return GROWTH_METHOD, (*_arms(growth.arms(data)), *GROWTH_GLOSSARY)
    if any(kind.is_of(data) for kind in PRETRAINED_KINDS):
        return PRETRAINED_METHOD, (*_arms(arms(data)), *PRETRAINED_GLOSSARY)
    trained = seeds_of(data)
    if trained:
        return ROBUST_METHOD, (*_arms(trained), *ROBUST_GLOSSARY)
    return (METHOD[0], RESAMPLED[data.units], *METHOD[1:]), GLOSSARY


def _arms(named: Iterable[str]) -> Iterator[tuple[str, str]]:
    return ((arm, ARMS[arm].meaning) for arm in named if arm in ARMS)


def _pairs(rows: Iterable[tuple[str, str]]) -> Iterator[Safe]:
    for name, text in rows:
        yield element("div", element("dt", name), element("dd", text))


def _flattened(value: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Nested mappings as dotted names; a command as it would be typed."""
    for key, inner in value.items():
        name = f"{prefix}{key}"
        if isinstance(inner, Mapping):
            yield from _flattened(inner, f"{name}.")
        elif isinstance(inner, list | tuple):
            words = [str(word) for word in inner]
            yield name, shlex.join(words) if key == "command" else ", ".join(words)
        elif inner is not None:
            yield name, str(inner)
