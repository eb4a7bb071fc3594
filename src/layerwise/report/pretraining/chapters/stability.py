"""How layer weights fail: rows that stay uniform, trainings that spike, seeds that end far apart."""

from __future__ import annotations

from layerwise.report.arms import arm_slots
from layerwise.report.evidence import Evidence
from layerwise.report.figures.dot_plot import DotArm, dots
from layerwise.report.page.answers import answers
from layerwise.report.page.chapter import Chapter, Heading, cards, folded, lead, legend, note
from layerwise.report.page.figure_slot import Picture
from layerwise.report.pretraining.lookup import ALL, UNIFORMITY, PretrainingScores
from layerwise.report.pretraining.stability import MARGIN, stability_findings, stability_rows, uniformity_rows

HEADING = Heading("stability", "Uniform rows and unstable trainings", "Stability")


def stability(evidence: Evidence) -> Chapter:
    """The findings, the distance of every row from equal shares, and what was noted of the trainings."""
    run = evidence.pretraining
    results = tuple(stability_findings(run))
    if not results:
        return HEADING.missing("Neither uniformity nor stability was measured in this run (uniformity, stability).")
    picture = _distances(run)
    pictures = () if picture is None else (picture,)
    tables = [
        folded(title, table.html())
        for title, table in (("Every row of weights", uniformity_rows(run)), ("Every arm", stability_rows(run)))
        if table.body
    ]
    body = (
        lead("A layer that weighs all its sources alike has learned no preference; a loss that spikes may stay up."),
        answers(results),
        *((legend(_slots(run), tuple(each.name for each in pictures)), cards(pictures)) if pictures else ()),
        note(
            "The distance of a row is the weight that would have to be moved to make it uniform; within the grey band,"
            f" {MARGIN:g}, it counts as uniform. Intervals are over seeds. A row may be far from uniform because it"
            " began there: what training moved stands beside it in the table. A spike is a noted training loss far"
            " above the five before it."
        ),
        *tables,
    )
    return HEADING.chapter(body, pictures)


def _slots(run: PretrainingScores) -> dict[str, int]:
    slots = arm_slots(run.arms)
    return {arm: slots[arm] for arm in run.subjects(UNIFORMITY, "distance") if arm in slots}


def _distances(run: PretrainingScores) -> Picture | None:
    shown = []
    for arm, slot in _slots(run).items():
        tasks = run.tasks_of(UNIFORMITY, "distance")
        scores = {task: run.score(UNIFORMITY, "distance", arm, task) for task in tasks if task != ALL}
        rows = {_reader(task): score for task, score in scores.items() if score is not None}
        shown.append(DotArm(arm, slot, rows))
    if not shown:
        return None
    figure = dots(shown, across="distance from equal shares", from_zero=True, allowed=(0.0, MARGIN))
    return Picture("uniformity", "How far each row is from uniform", {(): figure})


def _reader(task: str) -> str:
    return "the output" if task == "out" else f"layer {task}"
