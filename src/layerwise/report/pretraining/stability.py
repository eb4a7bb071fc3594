"""How layer weights fail, in sentences and as a table: uniform rows, spikes of the loss, seeds that end far apart."""

from __future__ import annotations

from collections.abc import Iterator

from layerwise.report.finding import Finding, Number, State
from layerwise.report.page.number_format import between, fixed, is_resolved, probability
from layerwise.report.page.table import Table
from layerwise.report.page.wording import counted
from layerwise.report.pretraining.lookup import ALL, STABILITY, UNIFORMITY, PretrainingScores
from layerwise.results.rows import Score

MARGIN = 0.05
"""The share of a row's weight that counts; a test compares it with that of the measure."""


def is_uniform(distance: Score) -> bool | None:
    """Whether weights are uniform by the interval of their distance: within the margin, beyond it, or undecided."""
    if distance.low is None or distance.high is None:
        return None
    return True if distance.high < MARGIN else False if distance.low > MARGIN else None


def stability_findings(run: PretrainingScores) -> Iterator[Finding]:
    """Are the weights uniform, and were the trainings stable?"""
    distances = run.subjects(UNIFORMITY, "distance")
    if distances:
        answers = [_uniform(run, arm, distance) for arm, distance in distances.items()]
        pieces = [piece for at, answer in enumerate(answers) for piece in (*(("; ",) if at else ()), *answer)]
        decided = all(is_uniform(distance) is not None for distance in distances.values())
        yield Finding("Are the layer weights uniform?", (*pieces, "."), "resolved" if decided else "unresolved")
    spreads = run.subjects(STABILITY, "spread")
    if spreads or run.subjects(STABILITY, "spiked"):
        yield _stable(run)


def _uniform(run: PretrainingScores, arm: str, distance: Score) -> tuple[str | Number, ...]:
    words = {True: "uniform", False: "not uniform", None: "not resolvable"}[is_uniform(distance)]
    rows = {task: run.score(UNIFORMITY, "distance", arm, task) for task in run.tasks_of(UNIFORMITY, "distance")}
    own = [score for task, score in rows.items() if score is not None and task != ALL]
    flat = sum(is_uniform(score) is True for score in own)
    start, learned = (run.score(UNIFORMITY, metric, arm) for metric in ("start", "learned"))
    pieces: list[str | Number] = [f"{arm} {words}, distance ", Number(_shown(distance))]
    if start is not None and learned is not None:
        moved = "" if learned.p is None or is_resolved(learned, run.level) else ", not distinguishable from none"
        if learned.value == 0:
            pieces.append(" as at the start")
        else:
            pieces += [f" from {fixed(start.value, 3)} at the start, moved by ", Number(_shown(learned, True)), moved]
    pieces.append(f", {flat} of {counted(len(own), 'layer')} uniform" if flat else "")
    return tuple(piece for piece in pieces if piece)


def _stable(run: PretrainingScores) -> Finding:
    pieces: list[str | Number] = []
    resolved = True
    for arm in dict.fromkeys((*run.subjects(STABILITY, "spread"), *run.arms)):
        spiked, spread, ratio = (run.score(STABILITY, metric, arm) for metric in ("spiked", "spread", "spread_ratio"))
        if spread is None and spiked is None:
            continue
        pieces.append("; " if pieces else "")
        pieces.append(f"{arm} ")
        if spiked is not None:
            spikes = run.by_seed(
                STABILITY, "spikes", arm
            ).values()  # of the trainings that had enough notes to be judged
            unstable = sum(score.value > 0 for score in spikes)
            pieces.append(f"{unstable} of {counted(len(spikes), 'training')} with a spike")
        if spread is not None:
            pieces += [", " if spiked is not None else "", "seeds stray by ", Number(_shown(spread)), " nats"]
        if ratio is not None:
            settled = is_resolved(ratio, run.level)
            resolved = resolved and settled
            words = ("more" if ratio.value > 1 else "less") if settled else "not distinguishable"
            pieces.append(f", {words} against {run.reference or 'the backbone'} (p {probability(ratio.p_adjusted)})")
    state: State = "resolved" if resolved else "unresolved"
    return Finding("Were the trainings stable?", (*(piece for piece in pieces if piece), "."), state)


def uniformity_rows(run: PretrainingScores) -> Table:
    """A row for each arm and reader: the distance from equal shares, where it began, and what training moved."""
    body = []
    for arm in run.subjects(UNIFORMITY, "distance"):
        for task in run.tasks_of(UNIFORMITY, "distance"):
            distance, start, learned, entropy = (
                run.score(UNIFORMITY, metric, arm, task) for metric in ("distance", "start", "learned", "entropy")
            )
            if distance is None or start is None or learned is None or entropy is None:
                continue
            verdict = {True: "uniform", False: "not uniform", None: "–"}[is_uniform(distance)]
            name = "all" if task == ALL else task
            cells = (_shown(distance), fixed(start.value, 3), _shown(learned, True), probability(learned.p_adjusted))
            body.append((arm, name, *cells, fixed(entropy.value, 3), verdict))
    head = ("arm", "reader", "distance", "at the start", "learned", "p", "entropy", "")
    return Table(head, tuple(body), numeric_from=2)


def stability_rows(run: PretrainingScores) -> Table:
    """A row an arm: trainings with a spike, the spread over seeds and its ratio to the backbone's, gradient norm."""
    metrics = ("spiked", "spread", "spread_ratio", "gradient_norm")
    body = []
    for arm in run.arms:
        scores = [run.score(STABILITY, metric, arm) for metric in metrics]
        if any(score is not None for score in scores):
            body.append((arm, *("–" if score is None else _shown(score) for score in scores)))
    head = ("arm", "trainings with a spike", "spread over seeds (nats)", "as a ratio", "gradient norm")
    return Table(head, tuple(body))


def _shown(score: Score, signed: bool = False) -> str:
    return between(score.value, score.low, score.high, signed=signed)
