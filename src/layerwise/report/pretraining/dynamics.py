"""What a study says beside its differences, in sentences: the initial bias, shares of the text, steps to a loss."""

from __future__ import annotations

from collections.abc import Iterator

from layerwise.report.finding import Finding, Number, State
from layerwise.report.page.number_format import between, fixed, is_resolved, probability
from layerwise.report.pretraining.lookup import (
    ALL,
    CONVERGENCE,
    DATA_SHARE,
    HELD_OUT,
    INITIAL_BIAS,
    PretrainingScores,
    suite_name,
)
from layerwise.report.quantity import PERCENT, scaled
from layerwise.results.rows import Score

GRID, TARGET = "grid", "target"
Pieces = list[str | Number]


def question_name(task: str) -> str:
    """What was asked, as it is read.

    >>> question_name("masked_lm"), question_name("control tasks")
    ('held-out loss', 'control tasks')
    """
    return "held-out loss" if task == HELD_OUT else suite_name(task)


def in_unit(task: str, score: Score, signed: bool = True) -> str:
    """A value or a difference of a question with its unit: nats per token, or points."""
    nats = task in (HELD_OUT, "nll")
    own = score if nats else scaled(score, PERCENT)
    return f"{between(own.value, own.low, own.high, signed=signed)} {'nats' if nats else 'points'}"


def dynamics_findings(run: PretrainingScores) -> Iterator[Finding]:
    """One finding for the grid of biases, for the shares of the text, and for each cost of a loss."""
    if run.tasks_of(INITIAL_BIAS, "slope"):
        yield _bias(run)
    yield from _shares(run)
    for cost in ("steps", "seconds"):
        if run.subjects(CONVERGENCE, "ratio", cost):
            yield _convergence(run, cost)


def _bias(run: PretrainingScores) -> Finding:
    pieces: Pieces = []
    settled = False
    for task in run.tasks_of(INITIAL_BIAS, "slope"):
        slope, differ = (run.score(INITIAL_BIAS, metric, GRID, task) for metric in ("slope", "differ"))
        assert slope is not None
        known = is_resolved(slope, run.level)
        any_form = differ is not None and is_resolved(differ, run.level)
        settled = settled or known or any_form
        words = "" if known else ", arms differ without a slope" if any_form else ", not resolvable"
        pieces += ["; " if pieces else "", f"{question_name(task)} ", Number(in_unit(task, slope)), f" per unit{words}"]
    state: State = "resolved" if settled else "unresolved"
    return Finding("Does the initial weight of the previous layer matter?", (*filter(None, pieces), "."), state)


def _shares(run: PretrainingScores) -> Iterator[Finding]:
    for metric, what in (("nll", "held-out loss"), ("pairs", "minimal pairs")):
        gaps = {
            task: score
            for task in run.tasks_of(DATA_SHARE, metric)
            for subject, score in run.subjects(DATA_SHARE, metric, task).items()
            if " - " in subject and task != ALL
        }
        if not gaps:
            continue
        pieces: Pieces = [f"{what} with layer weights minus that without: "]
        for at, (task, gap) in enumerate(gaps.items()):
            pieces += ["; " if at else "", f"on {_percent(task)} of the text ", Number(in_unit(metric, gap))]
        halving = next((of for name, of in run.subjects(DATA_SHARE, metric).items() if " - " in name), None)
        settled = halving is not None and is_resolved(halving, run.level)
        if halving is not None:
            pieces += ["; each halving adds ", Number(in_unit(metric, halving)), "" if settled else ", not resolvable"]
        state: State = "resolved" if settled else "unresolved"
        yield Finding(f"Are layer weights worth more with less text ({what})?", (*filter(None, pieces), "."), state)


def _percent(task: str) -> str:
    """A share of the text in percent; the task itself where it names none."""
    share = share_of(task)
    return task if share is None else f"{fixed(100 * share, 1).removesuffix('.0')} %"


def share_of(task: str) -> float | None:
    """The share of the text that a task such as `share 0.125` names, if it names one."""
    try:
        return float(task.removeprefix("share ")) if task.startswith("share ") else None
    except ValueError:
        return None


def _convergence(run: PretrainingScores, cost: str) -> Finding:
    target = run.score(CONVERGENCE, "loss", TARGET)
    pieces: Pieces = []
    settled = True
    for subject, ratio in run.subjects(CONVERGENCE, "ratio", cost).items():
        arm, _, reference = subject.partition(" - ")
        shares = {name: run.score(CONVERGENCE, "censored", name, cost) for name in (arm, reference)}
        never = {name: f"{fixed(100 * share.value, 0)} %" for name, share in shares.items() if share is not None}
        known = not never and is_resolved(ratio, run.level)
        settled = settled and known
        pieces += ["; " if pieces else "", f"{arm} "]
        if len(never) > 1:
            pieces.append(f"not known: trainings of {arm} and of {reference} never reach it")
        elif arm in never:
            bound = f"×{fixed(ratio.value, 2)}"
            pieces += ["at least ", Number(bound), f" ({never[arm]} of its trainings never reach it)"]
        elif reference in never:
            bound = f"×{fixed(ratio.value, 2)}"
            pieces += [
                "at most ",
                Number(bound),
                f" ({never[reference]} of the trainings of {reference} never reach it)",
            ]
        else:
            pieces.append(Number(f"×{between(ratio.value, ratio.low, ratio.high)}"))
            pieces.append("" if known else f", not distinguishable (p {probability(ratio.p_adjusted)})")
    reach = "" if target is None else f" (validation loss {fixed(target.value, 3)})"
    words = "steps" if cost == "steps" else "seconds"
    return Finding(
        f"How many {words} to the loss that the backbone reaches{reach}?",
        (f"Times those of {run.reference or 'the backbone'}: ", *filter(None, pieces), "."),
        "resolved" if settled else "unresolved",
    )
