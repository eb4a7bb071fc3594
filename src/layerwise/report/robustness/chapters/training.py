"""How the arms were trained: loss by step, and what each training took."""

from __future__ import annotations

from layerwise.report.arms import arm_slots
from layerwise.report.evidence import Evidence
from layerwise.report.figures.figure import Figure
from layerwise.report.figures.learning import LearningCurve, learning
from layerwise.report.kinds.pretraining import is_pretrained
from layerwise.report.page.chapter import Chapter, Heading, card, folded, lead, legend, note
from layerwise.report.page.figure_slot import Choice, Picture
from layerwise.report.robustness.chapters.absence import absent
from layerwise.report.robustness.lookup import TRAINING, RobustnessScores
from layerwise.report.robustness.tables import by_step, training_rows

HEADING = Heading(TRAINING, "How the arms were trained", "Training")
SELECTED = "The checkpoint with the best validation loss is the one that was tested."
LOSSES = {"validation_loss": "validation loss", "train_loss": "training loss"}


def training(evidence: Evidence) -> Chapter:
    """The courses of all arms in one figure; a row for each training."""
    run = evidence.robustness
    curves = {metric: drawn for metric in LOSSES if (drawn := _learning_curves(run, metric))}
    facts = training_rows(run)
    if not curves and not facts.body:
        return absent(evidence, HEADING, "No training is part of this run (layerwise train writes one).")
    pictures = (_picture(curves),) if curves else ()
    slots = {curve.name: curve.slot for drawn in curves.values() for curve in drawn}
    body = (
        lead("Loss by step." if is_pretrained(evidence.data) else f"Loss by step. {SELECTED}"),
        *(part for picture in pictures for part in (picture.controls(), legend(slots, (picture.name,)))),
        *(card(None, picture.html()) for picture in pictures),
        note(
            "Thin lines are seeds, bold ones their mean; models of different numbers of layers have none."
            " The losses of arms that do extra work hold that work too."
        ),
        *((folded("Every training", facts.html()),) if facts.body else ()),
    )
    return HEADING.chapter(body, pictures)


def _learning_curves(run: RobustnessScores, metric: str) -> list[LearningCurve]:
    slots = arm_slots(run.arms)
    curves = []
    for arm in run.arms:
        seeds = {name: by_step(rows) for name, rows in run.seeded(TRAINING, metric, arm).items()}
        measured = {name: losses for name, losses in seeds.items() if losses}
        same = len({name.partition("/")[0] for name in measured}) == 1
        curves += [LearningCurve(arm, measured, slots[arm], averaged=same)] if measured else []
    return curves


def _picture(curves: dict[str, list[LearningCurve]]) -> Picture:
    variants: dict[tuple[int, ...], Figure] = {
        (at,): learning(drawn, upwards=LOSSES[metric]) for at, (metric, drawn) in enumerate(curves.items())
    }
    choice = (Choice("Loss", tuple(LOSSES[metric] for metric in curves)),)
    return Picture("training", "Loss by step, a line an arm", variants, choice)
