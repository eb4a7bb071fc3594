"""Whether a layer's weights can be told from its neighbours', on what was held out, and what using the guess costs."""

from __future__ import annotations

import re

from layerwise.report.chapters.chapter import Chapter, card, lead, missing, note
from layerwise.report.data import Evidence
from layerwise.report.diagnosis import NULL, WHOLE, Diagnosis
from layerwise.report.figures.figure import Figure
from layerwise.report.figures.frame import DELTA_AXIS
from layerwise.report.figures.levels import Level, levels
from layerwise.report.figures.lines import lined, telling
from layerwise.report.markup import Safe, element
from layerwise.report.picture import Choice, Picture
from layerwise.report.series import Band, Line, Rows, layer_bands, null_name
from layerwise.results.rows import Score

MEASURE = "predictability"
FLOOR = -1.0  # R2 has no lower bound; what lies below is drawn here
HELD_OUT = {"heldout_rows_r2": "held-out rows", "heldout_layers_r2": "held-out layers"}
ALIGNMENTS = {
    "subspace": "Singular subspaces, stream side",
    "subspace_units": "Singular subspaces, unit side",
    "docs": "Similarity of units (DOCS)",
}
EVERY = "all tensor types"


def predictability(evidence: Evidence) -> Chapter:
    """R2 by tensor type against its nulls, alignment of neighbours by depth, and the cost of using predictions."""
    title, short = "Can a layer be predicted?", "Prediction"
    found = evidence.diagnosis
    explained, aligned, used = _explained(found), _aligned(found), _used(found)
    pictures = {**explained, **aligned, **used}
    if not pictures:
        text = "Predictability of weights was not measured in this run (predictability)."
        return Chapter(MEASURE, title, short, (missing(text),))
    body: list[Safe] = [
        lead(
            "A ridge regression from the two neighbours. Only what was held out counts: a fit explains its own noise."
        ),
        *(_placed(name, picture) for name, picture in explained.items()),
        *((element("h3", "What neighbouring layers share"),) if aligned else ()),
        *(picture.controls() for picture in aligned.values()),
        element("div", *(card(name, picture.html()) for name, picture in aligned.items()), class_="grid"),
        element("div", *(_placed(name, picture) for name, picture in used.items()), class_="grid pair spaced"),
        note(
            "p/n is the in-sample R² of a fit to pure noise. R² has no lower bound; below −1 the mark stands at −1 and"
            " the hover tells the value. Alignment is one where neighbours write and read the same directions. A"
            " prediction is priced against a random error of the same norm: only what it costs less is information."
        ),
    ]
    return Chapter(MEASURE, title, short, tuple(body), tuple(pictures.values()))


def _placed(name: str, picture: Picture) -> Safe:
    return element("div", card(name, picture.controls(), picture.html()), class_="spaced")


def _explained(found: Diagnosis) -> dict[str, Picture]:
    """R2 by tensor type, a variant for each way of holding out, with its own nulls; the same by depth; and of norms."""
    pictures: dict[str, Picture] = {}
    by_type: dict[tuple[int, ...], Figure] = {}
    by_depth: dict[tuple[int, ...], Figure] = {}
    for at, (metric, held_out) in enumerate(HELD_OUT.items()):
        marks = [
            *_null_levels(found, metric),
            Level(null_name("p_over_n"), _by_type(found, f"in_sample_r2{NULL}p_over_n"), 3, null=True),
            Level("in sample", _by_type(found, "in_sample_r2"), 1),
            Level(held_out, _by_type(found, metric), 0),
        ]
        if any(level.rows and not level.null for level in marks):
            by_type[at,] = levels([level for level in marks if level.rows], across="R²", floor=FLOOR)
        if layers := found.layers(MEASURE, metric):
            tell = telling("layer {}", "", found.level)
            line, bands = Line(held_out, layers, 0), layer_bands(found, MEASURE, metric)
            by_depth[at,] = lined([line], bands, across="layer", upwards="R²", tell=tell, height=310)
    choice = (Choice("Held out", tuple(HELD_OUT.values())),)
    if by_type:
        pictures["R² by tensor type"] = Picture("predictability-r2", "R² by tensor type, with nulls", by_type, choice)
    if by_depth:
        leader = "predictability-r2" if by_type else None
        pictures["R² by depth, what was held out"] = Picture(
            "predictability-depth", "Held-out R² by depth", by_depth, choice, leader=leader
        )
    norms = [*_null_levels(found, "norm_r2"), Level("R² of norms", _by_type(found, "norm_r2"), 2)]
    if norms[-1].rows:
        figure = levels([level for level in norms if level.rows], across="R² of a layer's norm", floor=FLOOR)
        title = "Norms predicted from neighbours' norms"
        pictures[title] = Picture("predictability-norms", title, {(): figure})
    return pictures


def _null_levels(found: Diagnosis, metric: str) -> list[Level]:
    return [
        Level(null_name(null), _by_type(found, f"{metric}{NULL}{null}"), slot, null=True)
        for slot, null in enumerate(_nulls(found, metric))
    ]


def _nulls(found: Diagnosis, metric: str) -> list[str]:
    tasks = found.tasks(MEASURE, metric)
    return sorted({null for task in tasks for null in found.nulls(MEASURE, metric, task)})


def _by_type(found: Diagnosis, metric: str) -> dict[str, Score]:
    """Tensor type to the score over all layers, all types together first."""
    scores = {task: found.score(MEASURE, WHOLE, metric, task) for task in found.tasks(MEASURE, metric)}
    return {EVERY if task == WHOLE else task: score for task, score in scores.items() if score is not None}


def _aligned(found: Diagnosis) -> dict[str, Picture]:
    """How much neighbouring layers share, pair by pair, for a tensor type to choose."""
    pictures: dict[str, Picture] = {}
    types = tuple(dict.fromkeys(task for metric in ALIGNMENTS for task in found.tasks(MEASURE, metric)))
    names = tuple(EVERY if task == WHOLE else task for task in types)
    for metric, title in ALIGNMENTS.items():
        variants: dict[tuple[int, ...], Figure] = {
            (at,): _pairs(found, metric, task, title)
            for at, task in enumerate(types)
            if found.pairs(MEASURE, metric, task)
        }
        if variants:
            leader = next(iter(pictures.values())).name if pictures else None
            choice = (Choice("Tensor type", names),)
            pictures[title] = Picture(f"predictability-{metric}", title, variants, choice, leader=leader)
    return pictures


def _pairs(found: Diagnosis, metric: str, task: str, title: str) -> Figure:
    bands = [
        Band(null_name(null), _first_of_pair(found, f"{metric}{NULL}{null}", task))
        for null in found.nulls(MEASURE, metric, task)
    ]
    tell = telling("layer {} and the next", "", found.level)
    line = Line(title, _first_of_pair(found, metric, task), 0)
    return lined([line], [b for b in bands if b.rows], across="", upwards="", tell=tell, height=240)


def _first_of_pair(found: Diagnosis, metric: str, task: str) -> Rows:
    """The scores of neighbours, at the first; a null of the whole model is level along the depth."""
    pairs = {
        first: score for (first, second), score in found.pairs(MEASURE, metric, task).items() if second == first + 1
    }
    whole = found.score(MEASURE, WHOLE, metric, task)
    return pairs or (dict.fromkeys(range(found.depth - 1), whole) if whole else {})


def _used(found: Diagnosis) -> dict[str, Picture]:
    """What running predicted weights costs, one layer at a time and many jointly."""
    pictures = {}
    one = found.layers(MEASURE, "use_cost")
    if one:
        tell = telling("layer {}", "nats per token", found.level, nats=True)
        bands = layer_bands(found, MEASURE, "use_cost")
        figure = lined([Line("predicted", one, 3)], bands, across="layer", upwards=DELTA_AXIS, tell=tell)
        title = "Cost of running one predicted layer"
        pictures[title] = Picture("predictability-use", title, {(): figure}, rooted=True)
    many = _sets(found, "use_cost")
    if many:
        tell = telling("{} layers predicted", "nats per token", found.level, nats=True)
        nulls = found.nulls(MEASURE, "use_cost")
        found_bands = [Band(null_name(null), _sets(found, f"use_cost{NULL}{null}")) for null in nulls]
        bands = tuple(band for band in found_bands if band.rows)
        figure = lined(
            [Line("predicted", many, 3)], bands, across="layers predicted jointly", upwards=DELTA_AXIS, tell=tell
        )
        title = "Cost of running many predicted layers"
        pictures[title] = Picture("predictability-sets", title, {(): figure}, rooted=True)
    return pictures


def _sets(found: Diagnosis, metric: str) -> Rows:
    subjects = found.subjects(MEASURE, metric).items()
    return {int(match[1]): score for name, score in subjects if (match := re.fullmatch(r"set:(\d+)", name))}
