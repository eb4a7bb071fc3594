"""A rehearsal as a table, and as sentences: what half of the nodes cost, and which arms differ in that."""

from __future__ import annotations

from collections.abc import Iterator

from layerwise.report.evidence import Evidence
from layerwise.report.page.number_format import fixed
from layerwise.report.page.plain_markdown import bullets
from layerwise.report.page.table import Table
from layerwise.report.quantity import scaled
from layerwise.report.rehearsal.lookup import BASELINE, LATENCY, QUALITY, RehearsalScores
from layerwise.results.rows import Score

MILLISECONDS = 1000.0
SHARES = {"refused": "refused (%)", "hedged": "asked twice (%)"}
COUNTS = {"missing": "layers missing", "replays": "replays a request"}


def rehearsal_table(run: RehearsalScores) -> Table:
    """A row for each arm, number of replicas and number of dead nodes."""
    units = {metric: axis for metric, (axis, _) in QUALITY.items() if metric in run.qualities}
    head = (
        "arm", "dead", *units.values(), *(f"{metric} (ms)" for metric in LATENCY), *SHARES.values(), *COUNTS.values(),
    )  # fmt: skip
    body = []
    for arm in run.arms:
        for replicas in run.replicas:
            for dead in run.dead:
                cells = [_text(run.score(arm, replicas, dead, metric), QUALITY[metric][1]) for metric in units]
                cells += [
                    _text(run.score(arm, replicas, dead, metric), MILLISECONDS, bounds=False) for metric in LATENCY
                ]
                cells += [_text(run.score(arm, replicas, dead, metric), 100.0, bounds=False) for metric in SHARES]
                cells += [_text(run.score(arm, replicas, dead, metric), 1.0, bounds=False) for metric in COUNTS]
                body.append((arm, f"{dead} of {run.nodes}, x{replicas}", *cells))
    return Table(head, tuple(body), numeric_from=2)


def rehearsal_sentences(run: RehearsalScores) -> Iterator[str]:
    """For each arm what the loss of half of the nodes, or of the number next to it, costs."""
    deaths = [dead for dead in run.dead if dead]
    if not deaths:
        return
    dead = min(deaths, key=lambda count: abs(2 * count - run.nodes))
    for arm in run.arms:
        for replicas in run.replicas:
            yield from _sentence(run, arm, replicas, dead)


def rehearsal_lines(run: RehearsalScores) -> list[str]:
    """The table and the sentences, for a terminal."""
    return [*rehearsal_table(run).lines(), *rehearsal_sentences(run)] if run.rows else []


def rehearsal_markdown(evidence: Evidence) -> Iterator[str]:
    """The sentences and the table."""
    run = RehearsalScores.of(evidence.data.scores)
    yield bullets(rehearsal_sentences(run))
    yield rehearsal_table(run).section("What is left when nodes die")


def _sentence(run: RehearsalScores, arm: str, replicas: int, dead: int) -> Iterator[str]:
    where = f"{arm}, {dead} of {run.nodes} nodes dead, {replicas} replica{'s' * (replicas != 1)}"
    for metric in run.qualities:
        axis, scale = QUALITY[metric]
        value = run.score(arm, replicas, dead, metric)
        if value is None:
            yield f"{where}: every request was refused."
            return
        text = f"{where}: {axis.partition(' (')[0]} {_text(value, scale)}"
        lost = run.score(arm, replicas, dead, f"{metric}_lost")
        if lost is not None and metric != "nll_added":
            text += f", {_text(lost, scale)} {_resolved(lost, 'lost')}"
        above = run.score(arm, replicas, dead, f"{metric}_above@{BASELINE}")
        if above is not None:
            text += f"; {_text(above, scale, signed=True)} against {BASELINE} {_resolved(above, 'by the same losses')}"
        yield text + "."


def _resolved(score: Score, words: str) -> str:
    if score.low is None or score.high is None:
        return f"{words} (the same in every draw)" if score.documents and score.documents > 1 else words
    return words if score.low > 0 or score.high < 0 else f"{words} (not resolvable in {score.documents} draws)"


def _text(score: Score | None, scale: float, *, bounds: bool = True, signed: bool = False) -> str:
    if score is None:
        return "–"
    shown = scaled(score, scale)
    digits = 1 if scale >= 100.0 else 2
    value = fixed(shown.value, digits, signed=signed)
    if not bounds or shown.low is None or shown.high is None:
        return value
    return f"{value} [{fixed(shown.low, digits, signed=signed)}, {fixed(shown.high, digits, signed=signed)}]"
