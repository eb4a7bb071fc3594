"""Is it worth it: the differences of arms, at equal tokens and at equal seconds, and the verdict in sentences."""

from __future__ import annotations

from layerwise.report.accounts import studied, study_rows
from layerwise.report.arms import arm_slots
from layerwise.report.chapters.chapter import Chapter, card, lead, legend, missing, note
from layerwise.report.chapters.pretraining.answers import answers
from layerwise.report.data import Evidence
from layerwise.report.figures.dots import Dots, dots
from layerwise.report.markup import element
from layerwise.report.picture import Picture
from layerwise.report.pretraining import HELD_OUT, STUDY, Pretraining
from layerwise.report.quantity import PERCENT, scaled
from layerwise.report.table import simple_table
from layerwise.report.worth import study_findings
from layerwise.results.rows import Score

TITLE, SHORT = "Are the layer weights worth it", "Worth"
DRAWN = {
    "nats": ("Held-out loss", "nats per token; left is better"),
    "points": ("Accuracy", "points; right is better"),
    "ratio": ("Cost", "ratio; left is cheaper"),
}


def study(evidence: Evidence) -> Chapter:
    """The verdicts, a figure for each unit, and every difference in a table."""
    found = evidence.pretraining
    pictures = tuple(picture for unit in DRAWN if (picture := _picture(found, unit)) is not None)
    if not pictures:
        return Chapter(STUDY, TITLE, SHORT, (missing("No arms were compared in this run (study)."),))
    rows = study_rows(found)
    body = (
        lead("The difference between two arms, seed for seed; where its interval holds zero, the seeds cannot tell."),
        answers(study_findings(found)),
        legend(_slots(found), tuple(picture.name for picture in pictures)),
        element("div", *(card(picture.alternative, picture.html()) for picture in pictures), class_="grid pair"),
        note(
            "At equal seconds each arm is judged where its training stood when the slower one's time was up. Intervals"
            " and p are over seeds. Differences of this kind are of a few hundredths of a nat where others measured"
            " them, so what is not resolvable here is not shown to be nothing."
        ),
        element("details", element("summary", "Every difference"), simple_table(rows.head, rows.body, numeric_from=3)),
    )
    return Chapter(STUDY, TITLE, SHORT, body, pictures)


def _slots(found: Pretraining) -> dict[str, int]:
    """A difference from the backbone has the colour of the arm that is judged, any other one of its own."""
    subjects = dict.fromkeys(
        subject
        for task in found.tasks_of(STUDY)
        for metric in found.metrics_of(STUDY, task)
        for subject in found.subjects(STUDY, metric, task)
    )
    called = {subject: subject.removesuffix(f" - {found.reference}") for subject in subjects}
    slots = arm_slots([*found.arms, *called.values()])
    return {subject: slots[name] for subject, name in called.items()}


def _picture(found: Pretraining, unit: str) -> Picture | None:
    rows: dict[str, dict[str, Score]] = {}
    for task in found.tasks_of(STUDY):
        for metric in found.metrics_of(STUDY, task):
            if unit_of(task, metric) == unit:
                for subject, score in found.subjects(STUDY, metric, task).items():
                    rows.setdefault(subject, {})[" ".join(studied(task)).strip()] = scaled(
                        score, PERCENT if unit == "points" else 1.0
                    )
    if not rows:
        return None
    title, axis = DRAWN[unit]
    slots = _slots(found)
    shown = [Dots(subject, slots[subject], of) for subject, of in rows.items()]
    figure = dots(shown, across=axis, reference=1.0 if unit == "ratio" else 0.0, signed=unit != "ratio")
    return Picture(f"study-{unit}", title, {(): figure})


def unit_of(task: str, metric: str) -> str:
    """The unit of a row of the study.

    >>> unit_of("masked_lm tokens", "difference"), unit_of("pairs tokens", "difference"), unit_of("time", "ratio")
    ('nats', 'points', 'ratio')
    """
    return "ratio" if metric == "ratio" else "nats" if task.startswith(HELD_OUT) else "points"
