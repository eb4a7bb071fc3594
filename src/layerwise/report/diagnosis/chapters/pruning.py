"""Sets of layers dropped jointly, as each score would choose them: the test that a ranking has to pass."""

from __future__ import annotations

from layerwise.report.diagnosis.lookup import DiagnosisScores
from layerwise.report.evidence import Evidence
from layerwise.report.figures.axis import Band, Line, Rows
from layerwise.report.figures.frame import DELTA_AXIS
from layerwise.report.figures.lines import hover_text, lined
from layerwise.report.page.chapter import Chapter, Heading, card, lead, legend, note
from layerwise.report.page.figure_slot import Picture
from layerwise.report.page.palette import SERIES
from layerwise.report.page.wording import label
from layerwise.results.rows import Score

MEASURE = "pruning"
PREFIX = "drop:"
RANDOM = "random"
HEADING = Heading(MEASURE, "Which layers can go together?", "Pruning")


def pruning(evidence: Evidence) -> Chapter:
    """A curve a score over the band of random sets."""
    run = evidence.diagnosis
    curves = _curves(run)
    if not curves:
        return HEADING.missing("No set of layers was dropped jointly in this run (pruning).")
    lines = [
        Line(label(name), rows, slot % len(SERIES))
        for slot, (name, rows) in enumerate((name, rows) for name, rows in curves.items() if name != RANDOM)
    ]
    bands = [Band("random sets", curves[RANDOM])] if RANDOM in curves else []
    describe = hover_text("{} layers dropped", "nats per token", run.level, nats=True)
    figure = lined(lines, bands, across="layers dropped jointly", upwards=DELTA_AXIS, describe=describe, height=440)
    picture = Picture("pruning", "Effect of dropping layers jointly, a curve a score", {(): figure}, rooted=True)
    body = (
        lead("Effects of single layers do not add up, so each score drops its k least important layers at once."),
        legend({line.name: line.slot for line in lines}, (picture.name,)),
        picture.controls(),
        card(None, picture.html()),
        note(
            "Grey: random sets of as many layers, their mean (dashed), the least and the most of them; where 20 are"
            " drawn, another falls between in 90 of 100 cases. A score that does not leave this band, or does no better"
            " than dropping the deepest layers but the last, has chosen nothing."
        ),
    )
    return HEADING.chapter(body, (picture,))


def _curves(run: DiagnosisScores) -> dict[str, Rows]:
    """Score to effect by the number of layers dropped, in the order of the rows."""
    curves: dict[str, dict[float, Score]] = {}
    for metric in run.metrics(MEASURE, PREFIX):
        dropped = int(metric.removeprefix(PREFIX))
        for name, score in run.subjects(MEASURE, metric).items():
            curves.setdefault(name, {})[dropped] = score
    return {name: dict(sorted(rows.items())) for name, rows in curves.items()}
