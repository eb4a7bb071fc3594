"""What the layers are made of, by depth: norms and spectra of their weights, what they add, and the attention sink."""

from __future__ import annotations

from layerwise.plan import PARTS
from layerwise.report.chapters.chapter import Chapter, card, lead, missing, note
from layerwise.report.data import Evidence
from layerwise.report.diagnosis import WHOLE, Diagnosis
from layerwise.report.figures.figure import Figure
from layerwise.report.figures.lines import lined, telling
from layerwise.report.markup import Safe, element
from layerwise.report.picture import Choice, Picture
from layerwise.report.series import Line, layer_bands

MEASURE = "structure"
WEIGHTS = {
    "norm": "Frobenius norm",
    "spectral_exponent": "Spectral exponent",
    "effective_rank": "Effective rank",
    "outlier_ratio": "Outlier ratio",
}
STATES = {
    "output_ratio": "What is added, against the state it is added to",
    "sink_strength": "Attention on the sink token",
    "sink_norm": "Norm of the sink token, against the median",
}
HALVES = {None: "whole layer", "attn": "attention", "mlp": "MLP"}
SMALL = 230
EVERY = "all tensor types"


def structure(evidence: Evidence) -> Chapter:
    """Small multiples by depth: the weights for a tensor type to choose, then what the layers do to the states."""
    title, short = "What the layers are made of", "Structure"
    found = evidence.diagnosis
    weights, states = _weights(found), _states(found)
    if not weights and not states:
        return Chapter(MEASURE, title, short, (missing("The structure of the layers was not measured in this run."),))
    body: list[Safe] = [
        lead("Described, not judged: a curve by depth is no cause. The twin has the same shape, untrained.")
    ]
    if weights:
        body += [element("h3", "The weights"), *(picture.controls() for picture in weights.values()), _grid(weights)]
    if states:
        body += [element("h3", "What the layers do to the states"), _grid(states)]
    body.append(
        note(
            f"Grey: a randomly initialised twin of the same configuration. Ribbons are intervals over {evidence.units}."
        )
    )
    return Chapter(MEASURE, title, short, tuple(body), (*weights.values(), *states.values()))


def _grid(pictures: dict[str, Picture]) -> Safe:
    return element("div", *(card(name, picture.html()) for name, picture in pictures.items()), class_="grid pair")


def _weights(found: Diagnosis) -> dict[str, Picture]:
    types = tuple(dict.fromkeys(task for metric in WEIGHTS for task in found.tasks(MEASURE, metric)))
    choice = (Choice("Tensor type", tuple(EVERY if task == WHOLE else task for task in types)),)
    pictures: dict[str, Picture] = {}
    for slot, metric in enumerate(WEIGHTS):
        variants: dict[tuple[int, ...], Figure] = {
            (at,): _by_depth(found, metric, task, slot)
            for at, task in enumerate(types)
            if found.layers(MEASURE, metric, task)
        }
        if variants:
            title = WEIGHTS[metric]
            leader = next(iter(pictures.values())).name if pictures else None
            pictures[title] = Picture(f"structure-{metric}", f"{title} by depth", variants, choice, leader=leader)
    return pictures


def _by_depth(found: Diagnosis, metric: str, task: str, slot: int) -> Figure:
    title = WEIGHTS[metric]
    line = Line(title, found.layers(MEASURE, metric, task), slot)
    bands = layer_bands(found, MEASURE, metric, task)
    return lined([line], bands, across="layer", upwards="", tell=telling("layer {}", "", found.level), height=SMALL)


def _states(found: Diagnosis) -> dict[str, Picture]:
    pictures = {}
    for metric, title in STATES.items():
        rows = {part: found.layers(MEASURE, metric, part=part) for part in (None, *PARTS)}
        lines = [Line(HALVES[part], layers, slot) for slot, (part, layers) in enumerate(rows.items()) if layers]
        if lines:
            pictures[title] = Picture(f"structure-{metric}", f"{title}, by depth", {(): _lines(found, metric, lines)})
    return pictures


def _lines(found: Diagnosis, metric: str, lines: list[Line]) -> Figure:
    bands = layer_bands(found, MEASURE, metric)
    tell = telling("layer {}", "", found.level)
    return lined(lines, bands, across="layer", upwards="ratio", tell=tell, height=320, legend=len(lines) > 1)
