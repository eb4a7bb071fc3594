"""Cheap stand-ins for ablation: one forward and one backward pass, and how near they come to the measured effect."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

from layerwise.plan import PARTS
from layerwise.report.chapters.chapter import Chapter, card, lead, missing, note
from layerwise.report.data import Evidence
from layerwise.report.diagnosis import Diagnosis
from layerwise.report.figures.figure import Figure
from layerwise.report.figures.frame import DELTA_AXIS
from layerwise.report.figures.grids import window_grid
from layerwise.report.figures.lines import lined, telling
from layerwise.report.figures.scatter import scattered
from layerwise.report.markup import Safe, element
from layerwise.report.notation import between, tidy
from layerwise.report.picture import Choice, Picture
from layerwise.report.series import Line, Rows, layer_bands
from layerwise.report.wording import label, listed
from layerwise.results.rows import Score

MEASURE = "proxies"
RANKED = ("block_influence", "angular", "gate_sensitivity", "gate_gradient", "taylor")
"""The proxies by the names of their rankings."""

HALVES = {None: "whole layer", "attn": "attention", "mlp": "MLP"}


def proxies(evidence: Evidence) -> Chapter:
    """Which proxy agrees with skipping; each by depth, the angular map, and the gates against the measured effect."""
    title, short = "Cheap proxies", "Proxies"
    found = evidence.diagnosis
    pictures = {**_influence(found), **_sensitivity(found), **_gradient(found), **_taylor(found), **_lens(found)}
    if not pictures:
        return Chapter(MEASURE, title, short, (missing("No proxy was measured in this run (proxies)."),))
    cards = (card(name, picture.controls(), picture.html()) for name, picture in pictures.items())
    body: list[Safe] = [
        lead(f"What a forward and a backward pass already tell about every layer.{_price(found)}"),
        *((element("p", told),) if (told := recommendation(found)) else ()),
        element("div", *cards, class_="grid pair"),
        note(
            "On the dotted diagonal the gate gradient, the slope of the loss as a layer is turned down, predicts"
            " the effect of skipping exactly; where a model has converged it should vanish. Its size, taken window"
            " by window (the gate sensitivity), does not, and has no sign. The logit lens reads each hidden state"
            " with the model's own head; state 0 is the embedding."
        ),
    ]
    return Chapter(MEASURE, title, short, tuple(body), tuple(pictures.values()))


def recommendation(found: Diagnosis) -> str:
    """Which proxies rank the layers as the measured skip does, the best first; empty where that was not compared.

    One agrees when its rank correlation with skipping leaves zero below its interval, and is beyond what random
    rankings reach (Holm's p over the proxies, which are what is chosen among).
    """
    compared = {name: score for name in RANKED if (score := found.score("agreement", f"skip,{name}", "spearman"))}
    if not compared:
        return ""
    ordered = sorted(compared, key=lambda name: -compared[name].value)
    beyond = _beyond_chance(compared, found.level)
    agreeing = [name for name in ordered if name in beyond and (compared[name].low or 0.0) > 0.0]
    told = {name: f"{label(name)} {between(row.value, row.low, row.high)}" for name, row in compared.items()}
    others = listed([told[name] for name in ordered if name not in agreeing])
    what = "Spearman's rank correlation with skipping over the layers"
    if not agreeing:
        return f"No proxy is recommended: none ranks these layers as skipping does, beyond chance ({what}: {others})."
    first, *more = [told[name] for name in agreeing]
    pieces = [f"Recommended for this model: {first} ({what})"]
    pieces += [f"also in agreement: {listed(more)}"] if more else []
    pieces += [f"not beyond chance: {others}"] if others else []
    return f"{'; '.join(pieces)}."


def _beyond_chance(compared: Mapping[str, Score], level: float) -> frozenset[str]:
    """Those whose p survives Holm's correction over all that are compared."""
    chances = {name: score.p for name, score in compared.items() if score.p is not None}
    ordered = sorted(chances, key=lambda name: chances[name])
    kept = itertools.takewhile(
        lambda place: (len(ordered) - place) * chances[ordered[place]] < level, range(len(ordered))
    )
    return frozenset(ordered[place] for place in kept)


def _price(found: Diagnosis) -> str:
    ratio = found.score("run", MEASURE, "cost_ratio")
    return "" if ratio is None else f" Together they took {tidy(ratio.value)} times one forward and one backward pass."


def _influence(found: Diagnosis) -> dict[str, Picture]:
    pictures = {}
    rows = found.layers(MEASURE, "block_influence")
    if rows:
        title = "Block Influence: 1 − cosine of input and output"
        tell = telling("layer {}", "", found.level)
        line = Line("Block Influence", rows, 0)
        figure = lined(
            [line], layer_bands(found, MEASURE, "block_influence"), across="layer", upwards="1 − cosine", tell=tell
        )
        pictures[title] = Picture("proxies-influence", title, {(): figure})
    windows = found.pairs(MEASURE, "angular_distance")
    if windows:
        title = "Angular distance across a window of layers"
        figure = window_grid(windows, titles=("first layer", "number of layers"), height=340)
        pictures[title] = Picture("proxies-angular", title, {(): figure})
    return pictures


def _sensitivity(found: Diagnosis) -> dict[str, Picture]:
    rows = {part: found.layers(MEASURE, "gate_sensitivity", part=part) for part in (None, *PARTS)}
    lines = [Line(HALVES[part], layers, slot) for slot, (part, layers) in enumerate(rows.items()) if layers]
    if not lines:
        return {}
    title = "Gate sensitivity: how much the loss of a window hangs on each layer"
    tell = telling("layer {}", "nats per token", found.level)
    bands = layer_bands(found, MEASURE, "gate_sensitivity")
    figure = lined(lines, bands, across="layer", upwards="mean |∂L/∂α|", tell=tell, legend=True)
    return {title: Picture("proxies-sensitivity", title, {(): figure})}


def _gradient(found: Diagnosis) -> dict[str, Picture]:
    pictures = {}
    tell = telling("layer {}", "nats per token", found.level, nats=True)
    rows = {part: found.layers(MEASURE, "gate_gradient", part=part) for part in (None, *PARTS)}
    lines = [Line(HALVES[part], layers, slot) for slot, (part, layers) in enumerate(rows.items()) if layers]
    if lines:
        title = "Gate gradient: first-order effect of skipping"
        bands = layer_bands(found, MEASURE, "gate_gradient")
        figure = lined(lines, bands, across="layer", upwards=DELTA_AXIS, tell=tell, legend=True)
        pictures[title] = Picture("proxies-gradient", title, {(): figure}, rooted=True)
    measured = {part: found.layers("ablation", "skip", part=part) for part in rows}
    scatters: dict[tuple[int, ...], Figure] = {
        (at,): scattered(
            measured[part],
            layers,
            titles=("Δ NLL of skipping", "gate gradient"),
            depth=found.depth,
            diagonal=True,
            height=340,
        )
        for at, (part, layers) in enumerate(rows.items())
        if layers and measured[part]
    }
    if scatters:
        title = "Gate gradient against the measured effect"
        pictures[title] = Picture("proxies-skip", title, scatters, (Choice("Part", tuple(HALVES.values())),))
    return pictures


def _taylor(found: Diagnosis) -> dict[str, Picture]:
    rows = found.layers(MEASURE, "taylor")
    if not rows:
        return {}
    title = "Taylor importance: Σ |w · ∂L/∂w|"
    tell = telling("layer {}", "", found.level)
    bands = layer_bands(found, MEASURE, "taylor")
    figure = lined([Line("Taylor importance", rows, 4)], bands, across="layer", upwards="", tell=tell)
    return {title: Picture("proxies-taylor", title, {(): figure})}


def _lens(found: Diagnosis) -> dict[str, Picture]:
    rows: Rows = found.layers(MEASURE, "logit_lens")
    if not rows:
        return {}
    title = "Logit lens: the loss read off each hidden state"
    tell = telling("hidden state {}", "nats per token", found.level)
    bands = layer_bands(found, MEASURE, "logit_lens")
    figure = lined(
        [Line("logit lens", rows, 2)], bands, across="hidden state", upwards="NLL (nats per token)", tell=tell
    )
    return {title: Picture("proxies-lens", title, {(): figure})}
