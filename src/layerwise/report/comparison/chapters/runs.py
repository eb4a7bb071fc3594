"""Where the numbers of a comparison come from, and how they were put side by side."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from layerwise.report.claims.markdown_page import command_line
from layerwise.report.comparison.compared import Compared, ComparedRun
from layerwise.report.page.chapter import Chapter, Heading, Missing, lead
from layerwise.report.page.markup import element
from layerwise.report.page.table import Table
from layerwise.results.vocabulary import FEWEST_UNITS

HEADING = Heading("runs", "The runs, and how they are compared", "Runs")
METHOD = (
    "Effects are paired differences to the model as trained on the same text, in nats per scored token of that model.",
    "Percent of the depth is the number of layers affected over all layers. Nothing is interpolated, but one of two"
    " curves where it is asked whether they coincide.",
    "A claim holds in every model if it is supported in each: each run errs in 5 % at most, and so do all together.",
    "A claim holds in any model if it is supported in one after Holm's correction over the models that were measured:"
    " its interval is widened from 95 % to 1 − 0.05 / K, for K models at the first step and fewer at the next ones.",
    "The rows hold intervals and no p-values of claims. An interval is widened about its value as Student's t of"
    f" {FEWEST_UNITS - 1} degrees of freedom is, the fewest that an interval has, so that no interval is too narrow.",
    "Where widening turns “shown to be small” into “above zero”, nothing is shown: a verdict stands after correction"
    " only if the rule gives it at 95 % too.",
    "That a layer is harmful was confirmed at 5 % on a part of the text. After correction it counts if its effect on"
    " all of the text is below zero with a p, corrected over the layers, below 0.05 / K.",
    "The correction holds however much the runs have in common, such as one text. It is over models, not over claims.",
)


def runs(compared: Compared, absent: Sequence[Chapter]) -> Chapter:
    """The folders and commands of the runs, the method, and the chapters that no run has rows for."""
    table = Table(
        ("model", "run", "made", "version", "command"), tuple(_run(run) for run in compared.runs), numeric_from=5
    )
    body = [
        lead("What ran, and how the numbers were put side by side."),
        table.html(),
        element(
            "div",
            element("h3", "How models are compared"),
            element("ul", *(element("li", line) for line in METHOD)),
        ),
    ]
    if absent:
        lines = (element("li", element("b", title), ": ", text) for title, text in _absences(absent))
        body.append(element("div", element("h3", "In none of the runs"), element("ul", *lines)))
    return HEADING.chapter(body)


def _run(run: ComparedRun) -> tuple[str, ...]:
    manifest = run.manifest
    versions = manifest.get("versions")
    version = versions.get("layerwise") if isinstance(versions, dict) else None
    return (
        run.name,
        run.folder,
        str(manifest.get("created") or "–"),
        str(version or "–"),
        command_line(manifest.get("command")),
    )


def _absences(absent: Sequence[Chapter]) -> Iterator[tuple[str, str]]:
    for chapter in absent:
        yield from ((chapter.title, piece.text) for piece in chapter.body if isinstance(piece, Missing))
