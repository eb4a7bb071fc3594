"""Which edge carries which phenomenon, in sentences: what fresh units confirm, and surface against linguistic."""

from __future__ import annotations

from collections.abc import Iterator

from layerwise.report.finding import Finding, Number, State
from layerwise.report.page.number_format import between, is_resolved
from layerwise.report.page.wording import counted
from layerwise.report.pretraining.lookup import EDGE_PHENOMENA, PretrainingScores, suite_name
from layerwise.results.rows import Score

SHOWN = 5
CONTRAST = "linguistic - surface"


def split_task(task: str) -> tuple[str, str, str]:
    """The suite, the phenomenon and the model of a row's task.

    >>> split_task("blimp: ellipsis @ elc/0"), split_task("pairs: negation")
    (('blimp', 'ellipsis', 'elc/0'), ('pairs', 'negation', ''))
    """
    suite, _, rest = task.partition(": ")
    name, _, model = rest.partition(" @ ")
    return suite, name, model


def groups(run: PretrainingScores) -> dict[tuple[str, str], list[str]]:
    """The tasks of each suite and model, the contrast of features left out."""
    grouped: dict[tuple[str, str], list[str]] = {}
    for task in run.tasks_of(EDGE_PHENOMENA, "effect"):
        suite, _, model = split_task(task)
        grouped.setdefault((suite, model), []).append(task)
    return grouped


def phenomenon_findings(run: PretrainingScores) -> Iterator[Finding]:
    """For each suite and model the edges that are confirmed to carry a phenomenon, and the kind of features."""
    for (suite, model), tasks in groups(run).items():
        confirmed = sorted(
            (
                (score, split_task(task)[1])
                for task in tasks
                for score in run.subjects(EDGE_PHENOMENA, "confirmed", task).values()
                if is_resolved(score, run.level)
            ),
            key=lambda pair: -abs(pair[0].value),
        )
        edges = max(len(run.subjects(EDGE_PHENOMENA, "effect", task)) for task in tasks)
        where = f"{suite_name(suite)}{f', {model}' if model else ''}"
        of = f"of {counted(edges, 'edge')} times {len(tasks)} phenomena"
        fresh = "confirmed on pairs or sentences that did not choose"
        pieces: list[str | Number] = [f"{counted(len(confirmed), 'effect')} {of} {fresh}"]
        for at, (score, name) in enumerate(confirmed[:SHOWN]):
            pieces += [": " if not at else "; ", f"{score.subject} for {name} ", Number(_nats(score))]
        pieces.append(f", and {len(confirmed) - SHOWN} more" if len(confirmed) > SHOWN else "")
        state: State = "resolved" if confirmed else "unresolved"
        yield Finding(f"Which edges carry which phenomenon ({where})?", (*filter(None, pieces), "."), state)
        yield from _contrast(run, suite, model, where)


def _contrast(run: PretrainingScores, suite: str, model: str, where: str) -> Iterator[Finding]:
    task = f"{suite}: {CONTRAST}{f' @ {model}' if model else ''}"
    contrast = run.subjects(EDGE_PHENOMENA, "contrast", task)
    if not contrast:
        return
    known = {name: score for name, score in contrast.items() if is_resolved(score, run.level)}
    sides = {side: [name for name, score in known.items() if (score.value > 0) == (side == "linguistic")]
             for side in ("linguistic", "surface")}  # fmt: skip
    listed = "; ".join(f"{side} features more: {', '.join(names) or 'no edge'}" for side, names in sides.items())
    pieces: list[str | Number] = [f"Edges that serve {listed}"]
    depth = run.score(EDGE_PHENOMENA, "rank_correlation", "all", task)
    if depth is not None:
        words = "" if is_resolved(depth, run.level) else ", not distinguishable from none"
        pieces += [
            "; with the depth of the reader ",
            Number(between(depth.value, depth.low, depth.high, signed=True)),
            words,
        ]
    settled = bool(known) or (depth is not None and is_resolved(depth, run.level))
    question = f"Do early layers serve surface features and later ones linguistic features ({where})?"
    yield Finding(question, (*filter(None, pieces), "."), "resolved" if settled else "unresolved")


def _nats(score: Score) -> str:
    return f"{between(score.value, score.low, score.high, signed=True)} nats"
