"""Sets of layers dropped jointly, as each score would choose them: the test that a ranking has to pass."""

from __future__ import annotations

from layerwise.report.chapters.chapter import Chapter, card, lead, legend, missing, note
from layerwise.report.data import Evidence
from layerwise.report.diagnosis import Diagnosis
from layerwise.report.figures.frame import DELTA_AXIS
from layerwise.report.figures.lines import lined, telling
from layerwise.report.palette import SERIES
from layerwise.report.picture import Picture
from layerwise.report.series import Band, Line, Rows
from layerwise.report.wording import label
from layerwise.results.rows import Score

MEASURE = "pruning"
PREFIX = "drop:"
RANDOM = "random"


def pruning(evidence: Evidence) -> Chapter:
    """A curve a score over the band of random sets."""
    title, short = "Which layers can go together?", "Pruning"
    found = evidence.diagnosis
    curves = _curves(found)
    if not curves:
        return Chapter(MEASURE, title, short, (missing("No set of layers was dropped jointly in this run (pruning)."),))
    lines = [
        Line(label(name), rows, slot % len(SERIES))
        for slot, (name, rows) in enumerate((name, rows) for name, rows in curves.items() if name != RANDOM)
    ]
    bands = [Band("random sets", curves[RANDOM])] if RANDOM in curves else []
    tell = telling("{} layers dropped", "nats per token", found.level, nats=True)
    figure = lined(lines, bands, across="layers dropped jointly", upwards=DELTA_AXIS, tell=tell, height=440)
    picture = Picture("pruning", "Effect of dropping layers jointly, a curve a score", {(): figure}, rooted=True)
    body = (
        lead("Effects of single layers do not add up, so each score drops its k least important layers at once."),
        legend({line.name: line.slot for line in lines}, (picture.name,)),
        picture.controls(),
        card(None, picture.html()),
        note(
            "Grey: random sets of as many layers, their mean (dashed) and where 95 % of them fall. A score that does"
            " not leave this band, or does no better than dropping the deepest layers but the last, has chosen nothing."
        ),
    )
    return Chapter(MEASURE, title, short, body, (picture,))


def _curves(found: Diagnosis) -> dict[str, Rows]:
    """Score to effect by the number of layers dropped, in the order of the rows."""
    curves: dict[str, dict[float, Score]] = {}
    for metric in found.metrics(MEASURE, PREFIX):
        dropped = int(metric.removeprefix(PREFIX))
        for name, score in found.subjects(MEASURE, metric).items():
            curves.setdefault(name, {})[dropped] = score
    return {name: dict(sorted(rows.items())) for name, rows in curves.items()}
