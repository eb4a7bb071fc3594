"""Which benchmark is fragile: on the scale from chance to the model as trained, whose score falls faster?

The fall of a benchmark is the slope of its score over the number of affected layers, over all windows and strategies
(`layerwise.measure.contrasts.benchmarks`). One is named where it is shown, with an interval corrected over the
benchmarks, to fall faster than the others do on average, and not by less than a quarter.
"""

from __future__ import annotations

from layerwise.report.claims.claim import Position, span
from layerwise.report.claims.painters import FASTER, factor, fragility
from layerwise.report.evidence import Evidence
from layerwise.report.finding import Finding, Number
from layerwise.report.page.wording import label, listed
from layerwise.results.rows import Score

QUESTION = "Which benchmark falls faster than the others?"


def named(evidence: Evidence, strategy: str | None = None) -> tuple[str, ...]:
    """The benchmarks that are shown to fall faster than the others, under a strategy or under all of them."""
    return tuple(name for name, score in fragility(evidence, strategy).items() if _position(score) == "above")


def fragile_benchmark(evidence: Evidence) -> Finding | None:
    """The benchmark that falls faster than the others, if one does; nothing of a run with fewer than two."""
    scores = fragility(evidence)
    if len(scores) < 2:
        return None
    fallen = named(evidence)
    positions = {_position(score) for score in scores.values()}
    pieces: list[str] = []
    if fallen:
        pieces.append(f"{listed(fallen)}. ")
    elif positions == {"within"}:
        pieces.append("None: each falls as the others do, within a quarter. ")
    else:
        pieces.append("Not resolvable. ")
    pieces.append("Over all windows and strategies, in times the mean fall of the others: ")
    for number, (name, score) in enumerate(scores.items()):
        pieces += [", " if number else "", f"{name} ", Number(factor(score))]
    pieces.append(f" (corrected over {len(scores)} benchmarks).{_by_strategy(evidence)}")
    return Finding(QUESTION, tuple(pieces), "resolved" if fallen or positions == {"within"} else "unresolved")


def _by_strategy(evidence: Evidence) -> str:
    """The strategies under which a benchmark is named, corrected over strategies too."""
    under = {strategy: named(evidence, strategy) for strategy in evidence.strategies}
    phrases = [f"{label(strategy)} ({listed(names)})" for strategy, names in under.items() if names]
    return f" Under one strategy alone, corrected over them as well: {listed(phrases)}." if phrases else ""


def _position(score: Score) -> Position:
    bounds = span(score)
    return "open" if bounds is None else bounds.position(FASTER)
