"""What pre-training gave: the arms by held-out loss and by minimal pairs, and what was found in sentences."""

from __future__ import annotations

from layerwise.report.arms import arm_slots
from layerwise.report.evidence import Evidence
from layerwise.report.figures.dot_plot import DotArm, dots
from layerwise.report.page.answers import answers
from layerwise.report.page.chapter import Chapter, Heading, cards, folded, lead, note
from layerwise.report.page.figure_slot import Picture
from layerwise.report.pretraining.findings import outcome_findings
from layerwise.report.pretraining.lookup import ALL, HELD_OUT, PretrainingScores, suite_name
from layerwise.report.pretraining.tables import TEST, outcome_rows
from layerwise.report.quantity import ACCURACY, scaled

HEADING = Heading(HELD_OUT, "What pre-training gave", "Outcome")


def outcome(evidence: Evidence) -> Chapter:
    """The findings, two figures of the arms side by side, and every number in a table."""
    run = evidence.pretraining
    pictures = tuple(picture for picture in (_losses(run), *_suites(run)) if picture is not None)
    if not pictures:
        return HEADING.missing(
            "Nothing was measured on held-out text yet (masked_lm), and no minimal pairs were evaluated (pairs)."
        )
    rows = outcome_rows(run)
    body = (
        lead("The arms of this run: each a wiring of one architecture, trained on the same text."),
        answers(outcome_findings(run)),
        cards(pictures, "grid pair"),
        note(
            "Large marks are arms with their interval, over documents or pairs, and over seeds where there are"
            " several; small dots are seeds. The dotted line is chance."
        ),
        folded("Every number", rows.html()),
    )
    return HEADING.chapter(body, pictures)


def _losses(run: PretrainingScores) -> Picture | None:
    shown = _arms(run, HELD_OUT, "nll", TEST, 1.0)
    if not shown:
        return None
    return Picture("held-out", "Loss on held-out text", {(): dots(shown, across="nats per masked token")})


def _suites(run: PretrainingScores) -> list[Picture]:
    """The first suite of minimal pairs alone: the others have a chapter of their own."""
    pictures = []
    for suite in run.suites[:1]:
        if shown := _arms(run, suite, "accuracy", ALL, ACCURACY.scale):
            figure = dots(shown, across=ACCURACY.axis, reference=chance(run, suite))
            pictures.append(Picture("outcome-pairs", suite_name(suite), {(): figure}))
    return pictures


def chance(run: PretrainingScores, suite: str) -> float:
    """What guessing scores on a suite, in percent: a half where its rows do not say."""
    return ACCURACY.scale * next((score.value for score in run.subjects(suite, "chance").values()), 0.5)


def _arms(run: PretrainingScores, measure: str, metric: str, task: str, scale: float) -> list[DotArm]:
    """A row an arm, in its colour, with its seeds."""
    slots = arm_slots(run.arms)
    shown = []
    for arm, score in run.by_arm(measure, metric, task).items():
        seeds = run.by_seed(measure, metric, arm, task).values()
        several = [scaled(of, scale) for of in seeds] if len(seeds) > 1 else []
        shown.append(DotArm(arm, slots[arm], {arm: scaled(score, scale)}, {arm: several} if several else {}))
    return shown
