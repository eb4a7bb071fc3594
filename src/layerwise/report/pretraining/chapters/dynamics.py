"""What a study says beside its differences: the grid of initial biases, shares of the text, and steps to one loss."""

from __future__ import annotations

from layerwise.report.arms import arm_slots
from layerwise.report.evidence import Evidence
from layerwise.report.figures.axis import Line
from layerwise.report.figures.dot_plot import DotArm, dots
from layerwise.report.figures.lines import hover_text, lined
from layerwise.report.page.answers import answers
from layerwise.report.page.chapter import Chapter, Heading, cards, lead, legend, note
from layerwise.report.page.figure_slot import Picture
from layerwise.report.pretraining.dynamics import dynamics_findings, question_name, share_of
from layerwise.report.pretraining.lookup import CONVERGENCE, DATA_SHARE, HELD_OUT, INITIAL_BIAS, PretrainingScores
from layerwise.report.quantity import PERCENT, scaled
from layerwise.results.rows import Score

HEADING = Heading("dynamics", "Beginnings, data and speed", "Dynamics")


def dynamics(evidence: Evidence) -> Chapter:
    """The findings, a curve of each question over the biases, of each metric over the shares, and the cost ratios."""
    run = evidence.pretraining
    results = tuple(dynamics_findings(run))
    ratios = _convergence(run)
    pictures = (*_biases(run), *_shares(run), *ratios)
    if not results and not pictures:
        return HEADING.missing(
            "No grid of biases, no share of the text and no steps to a loss are part of this run (initial_bias, "
            "data_share, convergence): layerwise study layer-weights --bias 0,0.5,1,2,4 --shares 1/8,1/4,1/2,1."
        )
    body = (
        lead(
            "With which weight of the layer before it a layer begins, how much there is to read, and how soon a loss"
            " is reached."
        ),
        answers(results),
        *(legend(slots, tuple(each.name for each in ratios)) for slots in (_slots(run),) if ratios),
        cards(pictures, "grid pair"),
        note(
            "Ribbons and bars are 95 % intervals over seeds. A bias of 0 begins with equal shares, 1 is the paper's, 4"
            " is nearly a plain stack. On a share of the text all arms take the same steps, so that a smaller share is"
            " read more often. Steps are counted to the validation loss that every training of the backbone reaches;"
            " a training that never reaches it counts with all its steps, and its bar has no interval."
        ),
    )
    return HEADING.chapter(body, pictures)


def _biases(run: PretrainingScores) -> list[Picture]:
    biases = {arm: score.value for arm, score in run.subjects(INITIAL_BIAS, "bias").items()}
    pictures: list[Picture] = []
    for task in run.tasks_of(INITIAL_BIAS, "value"):
        rows = {
            biases[arm]: _in_unit(task, score)
            for arm, score in run.subjects(INITIAL_BIAS, "value", task).items()
            if arm in biases
        }
        name = question_name(task)
        unit = "nats per masked token" if task == HELD_OUT else "points"
        figure = lined(
            [Line(name, rows, 0)], across="initial scalar of the previous layer", upwards=unit,
            describe=hover_text("bias {}", unit, run.level), height=300,
        )  # fmt: skip
        pictures.append(Picture(f"bias-{len(pictures)}", f"By initial bias: {name}", {(): figure}))
    return pictures


def _in_unit(task: str, score: Score) -> Score:
    return score if task in (HELD_OUT, "nll") else scaled(score, PERCENT)


def _shares(run: PretrainingScores) -> list[Picture]:
    subjects = [subject for metric in ("nll", "pairs") for subject in run.subjects(DATA_SHARE, metric, "share 1")]
    slots = arm_slots([*run.arms, *subjects])
    pictures = []
    for metric, title in (("nll", "held-out loss"), ("pairs", "minimal pairs")):
        lines: dict[str, dict[float, Score]] = {}
        for task in run.tasks_of(DATA_SHARE, metric):
            for subject, score in run.subjects(DATA_SHARE, metric, task).items():
                share = share_of(task)
                if " - " not in subject and share is not None:
                    lines.setdefault(subject, {})[share] = _in_unit(metric, score)
        if lines:
            unit = "nats per masked token" if metric == "nll" else "points"
            figure = lined(
                [Line(arm, rows, slots.get(arm, 0)) for arm, rows in lines.items()], across="share of the text",
                upwards=unit, describe=hover_text("{} of the text", unit, run.level), height=300, sizes=True,
                legend=True,
            )  # fmt: skip
            pictures.append(Picture(f"shares-{metric}", f"By share of the text: {title}", {(): figure}))
    return pictures


def _slots(run: PretrainingScores) -> dict[str, int]:
    """The arms whose steps were counted against the backbone's, each in its colour."""
    arms = [subject.partition(" - ")[0] for subject in run.subjects(CONVERGENCE, "ratio", "steps")]
    return {arm: slot for arm, slot in arm_slots([*run.arms, *arms]).items() if arm in arms}


def _convergence(run: PretrainingScores) -> list[Picture]:
    slots = _slots(run)
    by_arm: dict[str, dict[str, Score]] = {}
    for cost in ("steps", "seconds"):
        for subject, score in run.subjects(CONVERGENCE, "ratio", cost).items():
            by_arm.setdefault(subject.partition(" - ")[0], {})[cost] = score
    if not by_arm:
        return []
    shown = [DotArm(arm, slots.get(arm, 0), rows) for arm, rows in by_arm.items()]
    figure = dots(shown, across=f"ratio to {run.reference or 'the backbone'}; left is sooner", reference=1.0)
    return [Picture("convergence", "Steps and seconds to the same loss", {(): figure})]
