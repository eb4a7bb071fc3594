"""What pre-training gave: the arms by held-out loss and by minimal pairs, and what was found in sentences."""

from __future__ import annotations

from layerwise.report.accounts import TEST, outcome_rows
from layerwise.report.arms import arm_slots
from layerwise.report.chapters.chapter import Chapter, card, lead, missing, note
from layerwise.report.chapters.pretraining.answers import answers
from layerwise.report.data import Evidence
from layerwise.report.figures.dots import Dots, dots
from layerwise.report.markup import element
from layerwise.report.picture import Picture
from layerwise.report.pretraining import ALL, HELD_OUT, Pretraining, suite_name
from layerwise.report.quantity import ACCURACY, scaled
from layerwise.report.table import simple_table
from layerwise.report.worth import outcome_findings

ANCHOR, TITLE, SHORT = HELD_OUT, "What pre-training gave", "Outcome"


def outcome(evidence: Evidence) -> Chapter:
    """The findings, two figures of the arms side by side, and every number in a table."""
    found = evidence.pretraining
    pictures = tuple(picture for picture in (_losses(found), *_suites(found)) if picture is not None)
    if not pictures:
        text = "Nothing was measured on held-out text yet (masked_lm), and no minimal pairs were judged (pairs)."
        return Chapter(ANCHOR, TITLE, SHORT, (missing(text),))
    rows = outcome_rows(found)
    body = (
        lead("The arms of this run: each a wiring of one architecture, trained on the same text."),
        answers(outcome_findings(found)),
        element("div", *(card(picture.alternative, picture.html()) for picture in pictures), class_="grid pair"),
        note(
            "Large marks are arms with their interval, over seeds where there are several, else over documents or"
            " pairs; small dots are seeds. The dotted line is chance."
        ),
        element("details", element("summary", "Every number"), simple_table(rows.head, rows.body)),
    )
    return Chapter(ANCHOR, TITLE, SHORT, body, pictures)


def _losses(found: Pretraining) -> Picture | None:
    shown = _arms(found, HELD_OUT, "nll", TEST, 1.0)
    if not shown:
        return None
    return Picture("held-out", "Loss on held-out text", {(): dots(shown, across="nats per masked token")})


def _suites(found: Pretraining) -> list[Picture]:
    """The first suite of minimal pairs alone: the others have a chapter of their own."""
    pictures = []
    for suite in found.suites[:1]:
        if shown := _arms(found, suite, "accuracy", ALL, ACCURACY.scale):
            figure = dots(shown, across=ACCURACY.axis, reference=chance(found, suite))
            pictures.append(Picture("outcome-pairs", suite_name(suite), {(): figure}))
    return pictures


def chance(found: Pretraining, suite: str) -> float:
    """What guessing scores on a suite, in percent: a half where its rows do not tell."""
    return ACCURACY.scale * next((score.value for score in found.subjects(suite, "chance").values()), 0.5)


def _arms(found: Pretraining, measure: str, metric: str, task: str, scale: float) -> list[Dots]:
    """A row an arm, in its colour, with its seeds."""
    slots = arm_slots(found.arms)
    shown = []
    for arm, score in found.by_arm(measure, metric, task).items():
        seeds = found.by_seed(measure, metric, arm, task).values()
        several = [scaled(of, scale) for of in seeds] if len(seeds) > 1 else []
        shown.append(Dots(arm, slots[arm], {arm: scaled(score, scale)}, {arm: several} if several else {}))
    return shown
