"""The loss of nodes, looked up, and what its intervals say: worse together than alone, and which layout loses less.

Two costs are *alike* when the interval of their difference lies within two points of accuracy (0.05 nats), one is more
than the other when all of it lies to one side of zero, and the rest is not resolvable.
"""

from __future__ import annotations

from collections.abc import Iterator

from layerwise.report.claims.claim import span
from layerwise.report.finding import Number
from layerwise.report.page.table import Table
from layerwise.report.quantity import PERCENT
from layerwise.report.robustness.lookup import CONDITIONS, RANDOM_ORDER, RobustnessScores
from layerwise.results.rows import Score

MEASURE = "nodes"
BLOCKS, ROUND_ROBIN, SCATTERED, SINGLE = "in blocks", "round robin", "as many layers anywhere", "one by one"
LAYOUTS = {BLOCKS: "blocks", ROUND_ROBIN: "round-robin"}
ALIKE = {True: 0.05, False: 0.02}
"""What does not count: nats per token of a language model, else a share of the examples."""


def node_counts(run: RobustnessScores) -> tuple[int, ...]:
    """How many nodes there were, most first."""
    tasks = {task for arm in run.arms for task in run.conditions(MEASURE, metric_of(run), arm)}
    return tuple(sorted({int(count) for task in tasks if (count := task.split(" ")[0]).isdecimal()}, reverse=True))


def metric_of(run: RobustnessScores) -> str:
    """What the run counts a loss by."""
    return "nll_added" if run.is_language else "accuracy_lost"


def axis_of(run: RobustnessScores) -> tuple[float, str]:
    """The scale of the axis, and its words."""
    return (1.0, "nats per token added") if run.is_language else (PERCENT, "points of accuracy lost")


def cost_of(run: RobustnessScores, arm: str, count: int, lost: int, order: str, kind: str) -> Score | None:
    """What the loss of so many of so many nodes costs, in one layout; or what its layers cost anywhere, or alone."""
    metric, layout = metric_of(run), LAYOUTS.get(kind, "blocks")
    null = {SCATTERED: "@scattered", SINGLE: "@single"}.get(kind, "")
    return run.score(MEASURE, f"{metric}{null}", arm, f"{count} {layout} {lost} {order}")


def node_rows(run: RobustnessScores) -> Table:
    """A row for each arm, number of nodes, number lost and order."""
    scale, _ = axis_of(run)
    kinds = (BLOCKS, ROUND_ROBIN, SCATTERED, SINGLE)
    body = []
    for arm in run.arms_with(MEASURE):
        for count in node_counts(run):
            for lost in range(1, count):
                for order, words in CONDITIONS.items():
                    costs = [cost_of(run, arm, count, lost, order, kind) for kind in kinds]
                    worst = run.score(MEASURE, f"{metric_of(run)}.worst", arm, f"{count} blocks {lost} {order}")
                    if any(costs):
                        shown = (_text(score, scale) for score in (*costs, worst))
                        body.append((arm, f"{lost} of {count} nodes, {words}", *shown))
    return Table(("arm", "lost", *kinds, "worst block"), tuple(body), numeric_from=2)


def node_sentences(run: RobustnessScores) -> Iterator[tuple[str, tuple[str, ...]]]:
    """For each arm its name, what one of the most nodes costs in random order, and what decides about it."""
    counts = node_counts(run)
    scale, axis = axis_of(run)
    for arm in run.arms_with(MEASURE):
        for count in counts[:1]:
            costs = {kind: cost_of(run, arm, count, 1, RANDOM_ORDER, kind) for kind in (*LAYOUTS, SCATTERED, SINGLE)}
            if costs[BLOCKS] is None:
                continue
            sentence = [f"One of {count} nodes lost in random order costs ", Number(_text(costs[BLOCKS], scale))]
            sentence += [f" {axis.split(' ')[0]} in blocks"]
            if costs[ROUND_ROBIN] is not None:
                sentence += [" and ", Number(_text(costs[ROUND_ROBIN], scale)), " round robin"]
            yield arm, (*sentence, ". ", *_verdicts(run, arm, count))


def _verdicts(run: RobustnessScores, arm: str, count: int) -> Iterator[str]:
    questions = {
        ("blocks", "single"): ("The layers of a block cost {} together {} one by one", "more", "less"),
        ("blocks", "scattered"): ("The layers of a block cost {} {} as many anywhere", "more", "less"),
        ("round-robin", "blocks"): ("Round robin costs {} {} blocks", "more", "less"),
    }
    margin = ALIKE[run.is_language]
    for (layout, null), (words, more, less) in questions.items():
        task = f"{count} {layout} 1 {RANDOM_ORDER}"
        bounds = span(run.score(MEASURE, f"{metric_of(run)}_above@{null}", arm, task))
        if bounds is None:
            continue
        side = bounds.position(margin)
        compared = {"above": (more, "than"), "below": (less, "than"), "within": ("as much", "as")}.get(side)
        if compared is None:
            yield f"{words.format('more or less', 'than')}: not resolvable. "
        else:
            yield f"{words.format(*compared)}. "


def _text(score: Score | None, scale: float) -> str:
    if score is None:
        return "–"
    digits = 1 if scale == PERCENT else 2
    value = f"{scale * score.value:.{digits}f}"
    if score.low is None or score.high is None:
        return value
    return f"{value} [{scale * score.low:.{digits}f}, {scale * score.high:.{digits}f}]"
