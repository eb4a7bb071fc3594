"""Cheap stand-ins for ablation: one forward and one backward pass, and how near they come to the measured effect."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from layerwise.plan import Sublayer
from layerwise.report.diagnosis.lookup import DiagnosisScores
from layerwise.report.diagnosis.panels import HALVES, by_depth
from layerwise.report.evidence import Evidence
from layerwise.report.figures.figure import Figure
from layerwise.report.figures.frame import DELTA_AXIS
from layerwise.report.figures.heatmaps import window_grid
from layerwise.report.figures.scatter import layer_scatter
from layerwise.report.page.chapter import Chapter, Heading, card, lead, note
from layerwise.report.page.figure_slot import Choice, Picture, variants
from layerwise.report.page.markup import Safe, element
from layerwise.report.page.number_format import between, tidy
from layerwise.report.page.wording import label, listed
from layerwise.results.rows import Score

MEASURE = "proxies"
RANKED = ("block_influence", "angular", "gate_sensitivity", "gate_gradient", "taylor")
"""The proxies by the names of their rankings."""


@dataclass(frozen=True, slots=True)
class Panel:
    """A proxy by depth: the card's title, the name of the picture, the metric, the line and its colour."""

    title: str
    picture: str
    metric: str
    line: str
    slot: int
    unit: str = ""
    rooted: bool = False
    figure: Mapping[str, Any] = field(default_factory=lambda: {"upwards": ""})


PANELS = (
    Panel(
        "Block Influence: 1 − cosine of input and output",
        "proxies-influence",
        "block_influence",
        "Block Influence",
        0,
        figure={"upwards": "1 − cosine"},
    ),
    Panel(
        "Gate sensitivity: how much the loss of a window hangs on each layer",
        "proxies-sensitivity",
        "gate_sensitivity",
        "",
        0,
        "nats per token",
        figure={"upwards": "mean |∂L/∂α|", "halves": True, "legend": True},
    ),
    Panel(
        "Gate gradient: first-order effect of skipping",
        "proxies-gradient",
        "gate_gradient",
        "",
        0,
        "nats per token",
        rooted=True,
        figure={"upwards": DELTA_AXIS, "halves": True, "legend": True, "nats": True},
    ),
    Panel("Taylor importance: Σ |w · ∂L/∂w|", "proxies-taylor", "taylor", "Taylor importance", 4),
    Panel(
        "Logit lens: the loss read off each hidden state",
        "proxies-lens",
        "logit_lens",
        "logit lens",
        2,
        "nats per token",
        figure={"upwards": "NLL (nats per token)", "across": "hidden state"},
    ),
)
HEADING = Heading(MEASURE, "Cheap proxies", "Proxies")


def proxies(evidence: Evidence) -> Chapter:
    """Which proxy agrees with skipping; each by depth, the angular map, and the gates against the measured effect."""
    run = evidence.diagnosis
    pictures = _depth(run)
    if not pictures:
        return HEADING.missing("No proxy was measured in this run (proxies).")
    cards = (card(name, picture.controls(), picture.html()) for name, picture in pictures.items())
    body: list[Safe] = [
        lead(f"What a forward and a backward pass already say about every layer.{_price(run)}"),
        *((element("p", text),) if (text := recommendation(run)) else ()),
        element("div", *cards, class_="grid pair"),
        note(
            "On the dotted diagonal the gate gradient, the slope of the loss as a layer is turned down, predicts"
            " the effect of skipping exactly; where a model has converged it should vanish. Its size, taken window"
            " by window (the gate sensitivity), does not, and has no sign. The logit lens reads each hidden state"
            " with the model's own head; state 0 is the embedding."
        ),
    ]
    return HEADING.chapter(tuple(body), tuple(pictures.values()))


def recommendation(run: DiagnosisScores) -> str:
    """Which proxies rank the layers as the measured skip does, the best first; empty where that was not compared.

    One agrees when its rank correlation with skipping leaves zero below its interval, and is beyond what random
    rankings reach (Holm's p over the proxies, which are what is chosen among).
    """
    compared = {name: score for name in RANKED if (score := run.score("agreement", f"skip,{name}", "spearman"))}
    if not compared:
        return ""
    ordered = sorted(compared, key=lambda name: -compared[name].value)
    beyond = _beyond_chance(compared, run.level)
    agreeing = [name for name in ordered if name in beyond and (compared[name].low or 0.0) > 0.0]
    shown = {name: f"{label(name)} {between(row.value, row.low, row.high)}" for name, row in compared.items()}
    others = listed([shown[name] for name in ordered if name not in agreeing])
    what = "Spearman's rank correlation with skipping over the layers"
    if not agreeing:
        return f"No proxy is recommended: none ranks these layers as skipping does, beyond chance ({what}: {others})."
    first, *more = [shown[name] for name in agreeing]
    pieces = [f"Recommended for this model: {first} ({what})"]
    pieces += [f"also in agreement: {listed(more)}"] if more else []
    pieces += [f"not beyond chance: {others}"] if others else []
    return f"{'; '.join(pieces)}."


def _beyond_chance(compared: Mapping[str, Score], level: float) -> frozenset[str]:
    """Those whose p survives Holm's correction over all that are compared."""
    chances = {name: score.p for name, score in compared.items() if score.p is not None}
    ordered = sorted(chances, key=lambda name: chances[name])
    kept = itertools.takewhile(lambda rank: (len(ordered) - rank) * chances[ordered[rank]] < level, range(len(ordered)))
    return frozenset(ordered[rank] for rank in kept)


def _price(run: DiagnosisScores) -> str:
    ratio = run.score("run", MEASURE, "cost_ratio")
    return "" if ratio is None else f" Together they took {tidy(ratio.value)} times one forward and one backward pass."


def _depth(run: DiagnosisScores) -> dict[str, Picture]:
    """Each proxy by depth, and what is shown beside it, in reading order."""
    pictures: dict[str, Picture] = {}
    for panel in PANELS:
        figure = by_depth(run, MEASURE, panel.metric, panel.line, panel.slot, unit=panel.unit, **panel.figure)
        if figure:
            pictures[panel.title] = Picture(panel.picture, panel.title, {(): figure}, rooted=panel.rooted)
        pictures |= BESIDE[panel.metric](run) if panel.metric in BESIDE else {}
    return pictures


def _windows(run: DiagnosisScores) -> dict[str, Picture]:
    windows = run.pairs(MEASURE, "angular_distance")
    if not windows:
        return {}
    title = "Angular distance across a window of layers"
    figure = window_grid(windows, titles=("first layer", "number of layers"), height=340)
    return {title: Picture("proxies-angular", title, {(): figure})}


def _against_skip(run: DiagnosisScores) -> dict[str, Picture]:
    """The gate gradient against the measured effect, for the whole layer and for its halves."""

    def drawn(part: Sublayer | None) -> Figure | None:
        gradient = run.layers(MEASURE, "gate_gradient", part=part)
        measured = run.layers("ablation", "skip", part=part)
        titles = ("Δ NLL of skipping", "gate gradient")
        if not gradient or not measured:
            return None
        return layer_scatter(measured, gradient, titles=titles, depth=run.depth, equal=True, height=340)

    title = "Gate gradient against the measured effect"
    choice = (Choice("Part", tuple(HALVES.values())),)
    figures = variants(HALVES, drawn)
    return {title: Picture("proxies-skip", title, figures, choice)} if figures else {}


BESIDE = {"block_influence": _windows, "gate_gradient": _against_skip}
"""What stands after the picture of a proxy."""
