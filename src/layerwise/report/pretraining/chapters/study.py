"""Is it worth it: the differences of arms, at equal tokens and at equal seconds, and the verdict in sentences."""

from __future__ import annotations

from layerwise.report.arms import arm_slots
from layerwise.report.evidence import Evidence
from layerwise.report.figures.dot_plot import DotArm, dots
from layerwise.report.page.answers import answers
from layerwise.report.page.chapter import Chapter, Heading, cards, folded, lead, legend, note
from layerwise.report.page.figure_slot import Picture
from layerwise.report.pretraining.findings import study_findings
from layerwise.report.pretraining.lookup import HELD_OUT, STUDY, PretrainingScores
from layerwise.report.pretraining.tables import arm_rows, studied, study_rows
from layerwise.report.quantity import PERCENT, scaled
from layerwise.results.rows import Score

HEADING = Heading(STUDY, "Are the layer weights worth it", "Worth")
DRAWN = {
    "nats": ("Held-out loss", "nats per token; left is better"),
    "points": ("Accuracy", "points; right is better"),
    "ratio": ("Cost", "ratio; left is cheaper"),
}


def study(evidence: Evidence) -> Chapter:
    """The verdicts, a figure for each unit, and every difference in a table."""
    run = evidence.pretraining
    pictures = tuple(picture for unit in DRAWN if (picture := _picture(run, unit)) is not None)
    if not pictures:
        return HEADING.missing("No arms were compared in this run (study).")
    rows, arms = study_rows(run), arm_rows(run)
    body = (
        lead("The difference between two arms, seed for seed; where its interval holds zero, the seeds cannot decide."),
        answers(study_findings(run)),
        legend(_slots(run), tuple(picture.name for picture in pictures)),
        cards(pictures, "grid pair"),
        note(
            "At equal seconds each arm is evaluated where its training stood when the time of the slower one was up."
            " Intervals and p are over seeds. Differences of this kind are of a few hundredths of a nat where others"
            " measured them, so what is not resolvable here is not shown to be nothing."
        ),
        *((folded("Every arm", arms.html()),) if arms.body else ()),
        folded("Every difference", rows.html()),
    )
    return HEADING.chapter(body, pictures)


def _slots(run: PretrainingScores) -> dict[str, int]:
    """A difference from the backbone has the colour of the arm that is compared, any other one of its own."""
    subjects = dict.fromkeys(
        subject
        for task in run.tasks_of(STUDY)
        for metric in run.metrics_of(STUDY, task)
        for subject in run.subjects(STUDY, metric, task)
    )
    called = {subject: subject.removesuffix(f" - {run.reference}") for subject in subjects}
    slots = arm_slots([*run.arms, *called.values()])
    return {subject: slots[name] for subject, name in called.items()}


def _picture(run: PretrainingScores, unit: str) -> Picture | None:
    rows: dict[str, dict[str, Score]] = {}
    for task in run.tasks_of(STUDY):
        for metric in run.metrics_of(STUDY, task):
            if unit_of(task, metric) == unit:
                for subject, score in run.subjects(STUDY, metric, task).items():
                    rows.setdefault(subject, {})[" ".join(studied(task)).strip()] = scaled(
                        score, PERCENT if unit == "points" else 1.0
                    )
    if not rows:
        return None
    title, axis = DRAWN[unit]
    slots = _slots(run)
    shown = [DotArm(subject, slots[subject], of) for subject, of in rows.items()]
    figure = dots(shown, across=axis, reference=1.0 if unit == "ratio" else 0.0, signed=unit != "ratio")
    return Picture(f"study-{unit}", title, {(): figure})


def unit_of(task: str, metric: str) -> str:
    """The unit of a row of the study.

    >>> unit_of("masked_lm tokens", "difference"), unit_of("pairs tokens", "difference"), unit_of("time", "ratio")
    ('nats', 'points', 'ratio')
    """
    return "ratio" if metric == "ratio" else "nats" if task.startswith(HELD_OUT) else "points"
