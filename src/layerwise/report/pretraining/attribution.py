"""Which words a decision on mixed signals comes from, arm by arm, and whether layer weights change it."""

from __future__ import annotations

from collections.abc import Iterator

from layerwise.report.finding import Finding, Number, State
from layerwise.report.page.number_format import between, is_resolved
from layerwise.report.page.table import Table
from layerwise.report.page.wording import listed
from layerwise.report.pretraining.lookup import ATTRIBUTION, STUDY, PretrainingScores
from layerwise.report.quantity import PERCENT, scaled
from layerwise.results.rows import Score

PREFERENCE, SHUFFLED, TOKENS = "preference", "@shuffled", "@tokens"
COMPARED = "linguistic attribution tokens"
"""The task of the study's differences in preference."""

FEATURES = ("linguistic", "surface")
Pieces = list[str | Number]


def attribution_findings(run: PretrainingScores) -> Iterator[Finding]:
    """One finding for each task: what every arm prefers, with its null, and which arms differ from the backbone."""
    for task in run.tasks_of(ATTRIBUTION, PREFERENCE):
        pieces: Pieces = ["Attribution on linguistic minus surface words, beyond their share of the tokens: "]
        own, null = (run.by_arm(ATTRIBUTION, f"{PREFERENCE}{end}", task) for end in ("", SHUFFLED))
        for at, (arm, score) in enumerate(own.items()):
            pieces += ["; " if at else "", f"{arm} ", Number(_points(score, signed=True))]
            if arm in null:
                pieces += [" (shuffled labels ", Number(_points(null[arm], signed=True)), ")"]
        against = f" - {run.reference}"
        compared = {
            name.removesuffix(against): score
            for name, score in run.subjects(STUDY, "difference", COMPARED).items()
            if name.endswith(against)
        }
        differ = [arm for arm, score in compared.items() if is_resolved(score, run.level)]
        if compared:
            others = listed(differ) if differ else "none, at this many seeds"
            pieces.append(f". Different from {run.reference}: {others}")
        state: State = "described" if not compared else "resolved" if differ else "unresolved"
        yield Finding(f"Which words decide ({task})?", (*filter(None, pieces), "."), state)


def attribution_rows(run: PretrainingScores) -> Table:
    """A row for each arm: the shares of the words of both features, each beside its two nulls, and the preference."""
    body = []
    for task in run.tasks_of(ATTRIBUTION, PREFERENCE):
        columns = {metric: run.by_arm(ATTRIBUTION, metric, task) for metric in _metrics()}
        for arm in columns[PREFERENCE]:
            body.append((arm, *(_cell(columns[metric].get(arm), metric) for metric in columns)))
    shares = (name for feature in FEATURES for name in (f"{feature} words", "of tokens", "shuffled labels"))
    return Table(("arm", *shares, "preference", "shuffled labels"), tuple(body))


def largest_gap(run: PretrainingScores) -> float | None:
    """The most that is missing from completeness, over all models; `None` without one."""
    gaps = [
        score.value
        for metric in ("gap", f"gap{SHUFFLED}")
        for task in run.tasks_of(ATTRIBUTION, metric)
        for score in run.subjects(ATTRIBUTION, metric, task).values()
    ]
    return max(gaps, default=None)


def _metrics() -> tuple[str, ...]:
    of = tuple(f"{feature}{end}" for feature in FEATURES for end in ("", TOKENS, SHUFFLED))
    return (*of, PREFERENCE, f"{PREFERENCE}{SHUFFLED}")


def _cell(score: Score | None, metric: str) -> str:
    return "–" if score is None else _points(score, signed=metric.startswith(PREFERENCE), bounds=TOKENS not in metric)


def _points(score: Score, *, signed: bool, bounds: bool = True) -> str:
    points = scaled(score, PERCENT)
    low, high = (points.low, points.high) if bounds else (None, None)
    return between(points.value, low, high, signed=signed)
