"""What the models can be taught: tasks they were fine-tuned on, with chance beside them."""

from __future__ import annotations

from layerwise.report.accounts import benchmark_rows, chance_of, task_metrics
from layerwise.report.arms import arm_slots
from layerwise.report.chapters.chapter import Chapter, card, lead, legend, missing, note
from layerwise.report.data import Evidence
from layerwise.report.figures.dots import Dots, dots
from layerwise.report.markup import Safe, element
from layerwise.report.picture import Picture
from layerwise.report.pretraining import TASKS, Pretraining
from layerwise.report.table import simple_table

ANCHOR, TITLE, SHORT = "glue", "What the models can be taught", "Fine-tuning"
SAID = {
    "msgs": "On ambiguous tasks +1 is to generalise by structure, −1 by what meets the eye, 0 by neither.",
    "msgs-ours": "On ambiguous tasks +1 is to generalise by structure, −1 by what meets the eye, 0 by neither."
    " These sentences are of our own making: the numbers compare with nothing but each other.",
}


def benchmarks(evidence: Evidence) -> Chapter:
    """A figure and a table a suite."""
    found = evidence.pretraining
    drawn = {suite: _picture(found, suite) for suite in found.tasks}
    if not drawn:
        text = "No model was fine-tuned on a benchmark (glue, msgs, msgs-ours): layerwise evaluate RUN --suite does."
        return Chapter(ANCHOR, TITLE, SHORT, (missing(text),))
    arms = {arm for suite in drawn for key in task_metrics(found, suite) for arm in found.by_arm(suite, key[1], key[0])}
    slots = {arm: slot for arm, slot in arm_slots(found.arms).items() if arm in arms}
    left_out = (note(said.text) for said in evidence.data.notes if said.measure in drawn and said.measure != ANCHOR)
    body = (
        lead("Every model fine-tuned on each task, and asked about examples it has not seen."),
        legend(slots, tuple(picture.name for picture in drawn.values())),
        *(part for suite, picture in drawn.items() for part in _section(found, suite, picture)),
        note(
            "Chance, the short dotted line, is what always giving the commonest label scores. An arm's interval is over"
            " its pre-trained models where there are several, else over fine-tunings, else over examples."
        ),
        *left_out,
    )
    return Chapter(ANCHOR, TITLE, SHORT, body, tuple(drawn.values()))


def _section(found: Pretraining, suite: str, picture: Picture) -> tuple[Safe, ...]:
    rows = benchmark_rows(found, suite)
    said = (note(SAID[suite]),) if suite in SAID else ()
    table = element("div", simple_table(rows.head, rows.body, numeric_from=2), class_="spaced")
    return (element("h3", TASKS[suite]), card(None, picture.html()), *said, table)


def _picture(found: Pretraining, suite: str) -> Picture:
    keys = task_metrics(found, suite)
    slots = arm_slots(found.arms)
    scores = {f"{task}, {metric}": found.by_arm(suite, metric, task) for task, metric in keys}
    chance = {
        f"{task}, {metric}": value
        for task, metric in keys
        if (value := chance_of(found, suite, task, metric)) is not None
    }
    shown = [
        Dots(arm, slots[arm], rows)
        for arm in found.arms
        if (rows := {name: of[arm] for name, of in scores.items() if arm in of})
    ]
    figure = dots(shown, across="score", chance=chance, from_zero=True)
    return Picture(f"taught-{suite}", f"{TASKS[suite]} by task", {(): figure})
