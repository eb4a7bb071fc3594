"""Whether a layer's weights can be predicted from its neighbours', on what was held out, and what using the guess
costs.
"""

from __future__ import annotations

import re

from layerwise.report.claims.heterogeneity import ACCUMULATION, accumulated
from layerwise.report.diagnosis.lookup import WHOLE, DiagnosisScores
from layerwise.report.diagnosis.panels import by_depth, by_type, null_levels, null_metric, type_name
from layerwise.report.diagnosis.tables import joint_rows
from layerwise.report.evidence import Evidence
from layerwise.report.figures.figure import Figure
from layerwise.report.figures.frame import DELTA_AXIS
from layerwise.report.figures.levels import Level, levels
from layerwise.report.figures.lines import hover_text, lined
from layerwise.report.page.chapter import Chapter, Heading, card, cards, lead, note, spaced
from layerwise.report.page.figure_slot import Choice, Picture, led, variants
from layerwise.report.page.markup import Safe, element
from layerwise.report.series import Band, Line, Rows, null_name
from layerwise.results.rows import Score

MEASURE = "predictability"
FLOOR = -1.0  # R2 has no lower bound; what lies below is drawn here
HELD_OUT = {"heldout_rows_r2": "held-out rows", "heldout_layers_r2": "held-out layers"}
ALIGNMENTS = {
    "subspace": "Singular subspaces, stream side",
    "subspace_units": "Singular subspaces, unit side",
    "docs": "Similarity of units (DOCS)",
}
HEADING = Heading(MEASURE, "Can a layer be predicted?", "Prediction")


def predictability(evidence: Evidence) -> Chapter:
    """R2 by tensor type against its nulls, alignment of neighbours by depth, and the cost of using predictions."""
    run = evidence.diagnosis
    explained, shared, used = _explained(run), _shared(run), _used(run)
    pictures = {**explained, **shared, **used}
    if not pictures:
        return HEADING.missing("Predictability of weights was not measured in this run (predictability).")
    body: list[Safe] = [
        lead(
            "A ridge regression from the two neighbours. Only what was held out counts: a fit explains its own noise."
        ),
        *(_placed(name, picture) for name, picture in explained.items()),
        *((element("h3", "What neighbouring layers share"),) if shared else ()),
        *(picture.controls() for picture in shared.values()),
        cards(shared),
        element("div", *(_placed(name, picture) for name, picture in used.items()), class_="grid pair spaced"),
        *_together(run),
        note(
            "p/n is the in-sample R² of a fit to pure noise. R² has no lower bound; below −1 the mark stands at −1 and"
            " the hover shows the value. Alignment is one where neighbours write and read the same directions. A"
            " prediction is priced against a random error of the same norm: only what it costs less is information."
        ),
    ]
    return HEADING.chapter(tuple(body), tuple(pictures.values()))


def _together(run: DiagnosisScores) -> tuple[Safe, ...]:
    """Sets of predicted layers: what they cost together, and their layers one by one."""
    rows = joint_rows(run, ACCUMULATION, accumulated(run), "predicted layers")
    if not rows.body:
        return ()
    words = (
        "Sets are spread evenly (set), or neighbours in the middle (adjacent), or all layers but the ends (inner)."
        " Where the model is destroyed a loss has a ceiling, and costs no longer add up."
    )
    return (element("h3", "Many predicted layers together"), spaced(rows.html()), note(words))


def _placed(name: str, picture: Picture) -> Safe:
    return spaced(card(name, picture.controls(), picture.html()))


def _explained(run: DiagnosisScores) -> dict[str, Picture]:
    """R2 by tensor type, a variant for each way of holding out, with its own nulls; the same by depth; and of norms."""
    choice = (Choice("Held out", tuple(HELD_OUT.values())),)
    in_sample = [
        Level(null_name("p_over_n"), _types(run, null_metric("in_sample_r2", "p_over_n")), 3, null=True),
        Level("in sample", _types(run, "in_sample_r2"), 1),
    ]
    by_types = variants(
        HELD_OUT, lambda metric: _levels(run, metric, "R²", [*in_sample, _level(run, metric, HELD_OUT[metric], 0)])
    )
    depths = variants(
        HELD_OUT, lambda metric: by_depth(run, MEASURE, metric, HELD_OUT[metric], upwards="R²", height=310)
    )
    norms = _levels(run, "norm_r2", "R² of a layer's norm", [_level(run, "norm_r2", "R² of norms", 2)])
    shown = (
        ("R² by tensor type", "r2", "R² by tensor type, with nulls", by_types),
        ("R² by depth, what was held out", "depth", "Held-out R² by depth", depths),
    )
    title = "Norms predicted from neighbours' norms"
    return {
        **led({by: Picture(f"predictability-{name}", words, drawn, choice) for by, name, words, drawn in shown}),
        **({title: Picture("predictability-norms", title, {(): norms})} if norms else {}),
    }


def _levels(run: DiagnosisScores, metric: str, across: str, measured: list[Level]) -> Figure | None:
    """What was measured beside the nulls of a metric; `None` where there are only nulls."""
    if not any(level.rows and not level.null for level in measured):
        return None
    tasks = run.tasks(MEASURE, metric)
    nulls = sorted({null for task in tasks for null in run.nulls(MEASURE, metric, task)})
    beside = null_levels({null: _types(run, null_metric(metric, null)) for null in nulls})
    return levels([*beside, *(level for level in measured if level.rows)], across=across, floor=FLOOR)


def _level(run: DiagnosisScores, metric: str, name: str, slot: int) -> Level:
    return Level(name, _types(run, metric), slot)


def _types(run: DiagnosisScores, metric: str) -> dict[str, Score]:
    """Tensor type to the score over all layers, all types together first."""
    return by_type(run, MEASURE, metric, run.tasks(MEASURE, metric))


def _shared(run: DiagnosisScores) -> dict[str, Picture]:
    """How much neighbouring layers share, pair by pair, for a tensor type to choose."""
    types = tuple(dict.fromkeys(task for metric in ALIGNMENTS for task in run.tasks(MEASURE, metric)))
    choice = (Choice("Tensor type", tuple(type_name(task) for task in types)),)

    def picture(metric: str, title: str) -> Picture:
        drawn = variants(types, lambda task: _pairs(run, metric, task, title))
        return Picture(f"predictability-{metric}", title, drawn, choice)

    return led({title: picture(metric, title) for metric, title in ALIGNMENTS.items()})


def _pairs(run: DiagnosisScores, metric: str, task: str, title: str) -> Figure | None:
    if not run.pairs(MEASURE, metric, task):
        return None
    bands = [
        Band(null_name(null), rows)
        for null in run.nulls(MEASURE, metric, task)
        if (rows := _first_of_pair(run, null_metric(metric, null), task))
    ]
    line = Line(title, _first_of_pair(run, metric, task), 0)
    describe = hover_text("layer {} and the next", "", run.level)
    return lined([line], bands, across="", upwards="", describe=describe, height=240)


def _first_of_pair(run: DiagnosisScores, metric: str, task: str) -> Rows:
    """The scores of neighbours, at the first; a null of the whole model is level along the depth."""
    pairs = {first: score for (first, second), score in run.pairs(MEASURE, metric, task).items() if second == first + 1}
    whole = run.score(MEASURE, WHOLE, metric, task)
    return pairs or (dict.fromkeys(range(run.depth - 1), whole) if whole else {})


def _used(run: DiagnosisScores) -> dict[str, Picture]:
    """What running predicted weights costs, one layer at a time and many jointly."""
    one = by_depth(
        run, MEASURE, "predicted_weight_loss", "predicted", 3, unit="nats per token", nats=True, upwards=DELTA_AXIS
    )
    figures = {
        "Cost of running one predicted layer": ("predictability-use", one),
        "Cost of running many predicted layers": ("predictability-sets", _jointly(run)),
    }
    return {
        title: Picture(name, title, {(): figure}, rooted=True)
        for title, (name, figure) in figures.items()
        if figure is not None
    }


def _jointly(run: DiagnosisScores) -> Figure | None:
    many = _sets(run, "predicted_weight_loss")
    if not many:
        return None
    nulls = {
        null: _sets(run, null_metric("predicted_weight_loss", null))
        for null in run.nulls(MEASURE, "predicted_weight_loss")
    }
    bands = [Band(null_name(null), rows) for null, rows in nulls.items() if rows]
    describe = hover_text("{} layers predicted", "nats per token", run.level, nats=True)
    return lined(
        [Line("predicted", many, 3)], bands, across="layers predicted jointly", upwards=DELTA_AXIS, describe=describe
    )


def _sets(run: DiagnosisScores, metric: str) -> Rows:
    subjects = run.subjects(MEASURE, metric).items()
    return {int(match[1]): score for name, score in subjects if (match := re.fullmatch(r"set:(\d+)", name))}
