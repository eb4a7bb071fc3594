"""How the arms were trained: loss by step, and what each training took."""

from __future__ import annotations

from layerwise.report.arms import arm_slots
from layerwise.report.chapters.chapter import Chapter, card, lead, legend, note
from layerwise.report.chapters.robustness.absence import absent
from layerwise.report.data import Evidence
from layerwise.report.figures.figure import Figure
from layerwise.report.figures.learning import Course, learning
from layerwise.report.markup import element
from layerwise.report.picture import Choice, Picture
from layerwise.report.robustness import TRAINING, Robustness
from layerwise.report.standings import by_step, training_rows
from layerwise.report.table import simple_table

TITLE, SHORT = "How the arms were trained", "Training"
SELECTED = "The checkpoint with the best validation loss is the one that was tested."
LOSSES = {"validation_loss": "validation loss", "train_loss": "training loss"}


def training(evidence: Evidence) -> Chapter:
    """The courses of all arms in one figure; a row for each training."""
    found = evidence.robustness
    courses = {metric: drawn for metric in LOSSES if (drawn := _courses(found, metric))}
    facts = training_rows(found)
    if not courses and not facts.body:
        what = "No training is part of this run (layerwise train writes one)."
        return absent(evidence, TRAINING, TITLE, SHORT, what)
    pictures = (_picture(courses),) if courses else ()
    slots = {course.name: course.slot for drawn in courses.values() for course in drawn}
    body = (
        lead("Loss by step." if evidence.pretraining.measures else f"Loss by step. {SELECTED}"),
        *(part for picture in pictures for part in (picture.controls(), legend(slots, (picture.name,)))),
        *(card(None, picture.html()) for picture in pictures),
        note(
            "Thin lines are seeds, bold ones their mean; models of different numbers of layers have none."
            " The losses of arms that do extra work hold that work too."
        ),
        *(
            (element("details", element("summary", "Every training"), simple_table(facts.head, facts.body)),)
            if facts.body
            else ()
        ),
    )
    return Chapter(TRAINING, TITLE, SHORT, body, pictures)


def _courses(found: Robustness, metric: str) -> list[Course]:
    slots = arm_slots(found.arms)
    courses = []
    for arm in found.arms:
        seeds = {name: by_step(rows) for name, rows in found.seeded(TRAINING, metric, arm).items()}
        measured = {name: losses for name, losses in seeds.items() if losses}
        same = len({name.partition("/")[0] for name in measured}) == 1
        courses += [Course(arm, measured, slots[arm], averaged=same)] if measured else []
    return courses


def _picture(courses: dict[str, list[Course]]) -> Picture:
    variants: dict[tuple[int, ...], Figure] = {
        (at,): learning(drawn, upwards=LOSSES[metric]) for at, (metric, drawn) in enumerate(courses.items())
    }
    choice = (Choice("Loss", tuple(LOSSES[metric] for metric in courses)),)
    return Picture("training", "Loss by step, a line an arm", variants, choice)
