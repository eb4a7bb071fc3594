"""Layer weights in pretraining, in fine-tuning, in both, in neither: scores, and how soon fine-tuning reaches one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from layerwise.report.finding import Finding, Number, State
from layerwise.report.page.number_format import between, fixed, is_resolved, probability, tidy
from layerwise.report.page.table import Table
from layerwise.report.page.wording import listed
from layerwise.report.pretraining.lookup import BACKBONE, TUNING_CONVERGENCE, PretrainingScores
from layerwise.report.pretraining.tables import task_metrics
from layerwise.results.rows import Score

WEIGHTS_IN = {BACKBONE: "neither", "elc-kept": "pretraining", "ltg-rewired": "fine-tuning", "elc": "both"}
"""The four arms that say when layer weights are learned."""

TARGET, ALL_TASKS = "target", "all"
Pieces = list[str | Number]


def fine_tuning_findings(run: PretrainingScores) -> Iterator[Finding]:
    """One finding: how many times the steps and the seconds of the backbone each of the other three arms needs."""
    targets = targeted(run)
    if not targets:
        return
    over = ALL_TASKS if len(targets) > 1 else next(iter(targets))
    pieces: Pieces = []
    settled = True
    for arm, when in WEIGHTS_IN.items():
        ratios = {cost: _ratio(run, arm, over, cost) for cost in ("steps", "seconds")}
        if arm == BACKBONE or ratios["steps"] is None:
            continue
        pieces += ["; " if pieces else "", f"weights in {when if when == 'both' else f'{when} only'}: "]
        for cost, ratio in ratios.items():
            if ratio is not None:
                own, known = _judged(run, arm, over, cost, ratio)
                pieces += ["" if cost == "steps" else ", ", f"{cost} ", *own]
                settled = settled and known
    if not pieces:
        return
    reached = listed([f"{task} {fixed(score.value, 3)}" for task, score in targets.items()])
    words = f"Against weights in neither, to the selection score that it reaches ({reached}): "
    state: State = "resolved" if settled else "unresolved"
    yield Finding("Do layer weights make fine-tuning sooner?", (words, *filter(None, pieces), "."), state)


def targeted(run: PretrainingScores) -> dict[str, Score]:
    """The tasks whose learning curves were compared, each with the selection score to which costs were counted."""
    return {
        task: score
        for task in run.tasks_of(TUNING_CONVERGENCE, "score")
        if (score := run.score(TUNING_CONVERGENCE, "score", TARGET, task)) is not None
    }


def fine_tuning_rows(run: PretrainingScores, arms: Iterable[str]) -> Table:
    """A row for each task and arm: its score on test examples, then steps and seconds to the common selection score."""
    body = []
    arms = tuple(arms)
    for task in targeted(run):
        scores = _scores(run, task)
        for arm in arms:
            costs = tuple(_costs(run, arm, task))
            if arm in scores or any(cell != "–" for cell in costs):
                own = scores.get(arm)
                shown = "–" if own is None else between(own.value, own.low, own.high)
                body.append((task, arm, WEIGHTS_IN.get(arm, "–"), shown, *costs))
    return Table(
        ("task", "arm", "weights in", "score", "steps", "× steps", "seconds", "× seconds"), tuple(body), numeric_from=3
    )


def _scores(run: PretrainingScores, task: str) -> dict[str, Score]:
    """The first metric of a task by arm, whichever suite it is of."""
    for suite in run.tasks:
        for name, metric in task_metrics(run, suite):
            if name == task:
                return run.by_arm(suite, metric, task)
    return {}


def _costs(run: PretrainingScores, arm: str, task: str) -> Iterator[str]:
    """What an arm needs to the common score, as steps and their ratio to the backbone's, then as seconds and theirs."""
    for cost in ("steps", "seconds"):
        spent, ratio = run.score(TUNING_CONVERGENCE, "cost", arm, f"{task} {cost}"), _ratio(run, arm, task, cost)
        bound = "≥ " if run.score(TUNING_CONVERGENCE, "censored", arm, f"{task} {cost}") is not None else ""
        yield "–" if spent is None else f"{bound}{tidy(spent.value)}"
        never = run.score(TUNING_CONVERGENCE, "censored", BACKBONE, f"{task} {cost}") is not None
        if ratio is None or (never and bound):
            yield "–"
        else:
            yield f"{'≤ ' if never else bound}×{between(ratio.value, ratio.low, ratio.high)}"


def _ratio(run: PretrainingScores, arm: str, task: str, cost: str) -> Score | None:
    return run.score(TUNING_CONVERGENCE, "ratio", f"{arm} - {BACKBONE}", f"{task} {cost}")


def _judged(run: PretrainingScores, arm: str, task: str, cost: str, ratio: Score) -> tuple[Pieces, bool]:
    """A ratio in words, and whether it is distinguished from 1."""
    tasks = [f"{name} {cost}" for name in targeted(run)] if task == ALL_TASKS else [f"{task} {cost}"]
    never = [
        name
        for name in (arm, BACKBONE)
        if any(run.score(TUNING_CONVERGENCE, "censored", name, of) is not None for of in tasks)
    ]
    if len(never) > 1:
        return ["not known, as neither always reaches it"], False
    if never:
        return ["at least " if arm in never else "at most ", Number(f"×{fixed(ratio.value, 2)}")], False
    number = Number(f"×{between(ratio.value, ratio.low, ratio.high)}")
    known = is_resolved(ratio, run.level)
    p = "" if ratio.p_adjusted is None else f", p {probability(ratio.p_adjusted)}"
    return [number, "" if known else f" (not distinguishable{p})"], known
