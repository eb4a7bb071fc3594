"""What the models can be taught: tasks they were fine-tuned on, with chance beside them."""

from __future__ import annotations

from layerwise.report.arms import arm_slots
from layerwise.report.evidence import Evidence
from layerwise.report.figures.dot_plot import DotArm, dots
from layerwise.report.page.chapter import Chapter, Heading, card, lead, legend, note, spaced
from layerwise.report.page.figure_slot import Picture
from layerwise.report.page.markup import Safe, element
from layerwise.report.pretraining.lookup import TASKS, PretrainingScores
from layerwise.report.pretraining.tables import benchmark_rows, chance_of, task_metrics

HEADING = Heading("glue", "What the models can be taught", "Fine-tuning")
REMARKS = {
    "msgs": "On ambiguous tasks +1 is to generalise by structure, −1 by what meets the eye, 0 by neither.",
    "msgs-ours": "On ambiguous tasks +1 is to generalise by structure, −1 by what meets the eye, 0 by neither."
    " These sentences are of our own making: the numbers compare with nothing but each other.",
}


def benchmarks(evidence: Evidence) -> Chapter:
    """A figure and a table a suite."""
    run = evidence.pretraining
    drawn = {suite: _picture(run, suite) for suite in run.tasks}
    if not drawn:
        return HEADING.missing(
            "No model was fine-tuned on a benchmark (glue, msgs, msgs-ours): layerwise evaluate RUN --suite does."
        )
    arms = {arm for suite in drawn for key in task_metrics(run, suite) for arm in run.by_arm(suite, key[1], key[0])}
    slots = {arm: slot for arm, slot in arm_slots(run.arms).items() if arm in arms}
    notes = (each for each in evidence.data.notes if each.measure in drawn and each.measure != HEADING.anchor)
    body = (
        lead("Every model fine-tuned on each task, and evaluated on examples it has not seen."),
        legend(slots, tuple(picture.name for picture in drawn.values())),
        *(part for suite, picture in drawn.items() for part in _section(run, suite, picture)),
        note(
            "Chance, the short dotted line, is what always giving the commonest label scores. An arm's interval is over"
            " its pre-trained models where there are several, else over fine-tunings, else over examples."
        ),
        *(note(each.text) for each in notes),
    )
    return HEADING.chapter(body, tuple(drawn.values()))


def _section(run: PretrainingScores, suite: str, picture: Picture) -> tuple[Safe, ...]:
    rows = benchmark_rows(run, suite)
    remark = (note(REMARKS[suite]),) if suite in REMARKS else ()
    table = spaced(rows.html())
    return (element("h3", TASKS[suite]), card(None, picture.html()), *remark, table)


def _picture(run: PretrainingScores, suite: str) -> Picture:
    keys = task_metrics(run, suite)
    slots = arm_slots(run.arms)
    scores = {f"{task}, {metric}": run.by_arm(suite, metric, task) for task, metric in keys}
    chance = {
        f"{task}, {metric}": value
        for task, metric in keys
        if (value := chance_of(run, suite, task, metric)) is not None
    }
    shown = [
        DotArm(arm, slots[arm], rows)
        for arm in run.arms
        if (rows := {name: of[arm] for name, of in scores.items() if arm in of})
    ]
    figure = dots(shown, across="score", chance=chance, from_zero=True)
    return Picture(f"taught-{suite}", f"{TASKS[suite]} by task", {(): figure})
