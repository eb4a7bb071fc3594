"""Which arm survives what: the matrix of the first chapter, and the sentences that its intervals support.

Each condition changes the model and asks what is left of its accuracy. What is left is measured on one scale for the
whole run: 0 is chance, 1 is the best arm in order, both as credit (see `quantity`). An arm *survives* a condition when
even the low end of its interval keeps three quarters of that way, it is *lost* when even the high end keeps less than
one quarter, and all else is survival *in part*: so the words never say more than the intervals do. A number without an
interval is left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from layerwise.report.finding import Number
from layerwise.report.page.wording import counted, listed
from layerwise.report.quantity import Quantity
from layerwise.report.robustness.lookup import IN_ORDER, RANDOM_ORDER, RobustnessScores
from layerwise.report.sweep.findings import FADES, SURVIVES
from layerwise.results.rows import Score

Fate = Literal["survives", "in part", "lost"]
RULE = "even"
VERBS: dict[Fate, str] = {"survives": "survives", "in part": "survives in part", "lost": "does not survive"}
BY_WHOM: dict[Fate, str] = {
    "survives": "survived by",
    "in part": "survived in part by",
    "lost": "not survived by",
}


@dataclass(frozen=True, slots=True)
class SurvivalCondition:
    """Something to survive: its position in the matrix (`group`, `name`), its words in a sentence, and its rows."""

    group: str
    name: str
    words: str
    measure: str
    task: str


@dataclass(frozen=True, slots=True)
class Cell:
    """An arm under a condition: the score, the share that is left of the best arm in order, and what became of it."""

    score: Score
    share: float
    fate: Fate
    at_chance: bool


@dataclass(frozen=True, slots=True)
class Survival:
    """The matrix: arms by conditions, only those that have a cell."""

    conditions: tuple[SurvivalCondition, ...]
    cells: Mapping[str, Mapping[SurvivalCondition, Cell]]
    quantity: Quantity

    def fates(self, arm: str) -> dict[Fate, list[SurvivalCondition]]:
        """The conditions of an arm by what became of it, without the order of training."""
        by_fate: dict[Fate, list[SurvivalCondition]] = {"survives": [], "in part": [], "lost": []}
        for condition, cell in self.cells[arm].items():
            if condition.task != IN_ORDER:
                by_fate[cell.fate].append(condition)
        return by_fate


def conditions(run: RobustnessScores) -> tuple[SurvivalCondition, ...]:
    """The conditions of every arm, those with rows first to last: order, half of the layers, layers of other models."""
    half = _half(run)
    kept = "" if half is None else f"{half} of {run.depth} layers"
    lost = "" if half is None else f"the loss of {counted(run.depth - half, 'layer')}"
    possible = (
        SurvivalCondition("all layers", "in order", "its own order", "robustness", IN_ORDER),
        SurvivalCondition("all layers", "random order", "random order", "robustness", RANDOM_ORDER),
        SurvivalCondition(kept, "in order", lost, "robustness", f"kept {half} {RULE} {IN_ORDER}"),
        SurvivalCondition(
            kept, "random order", f"{lost} in random order", "robustness", f"kept {half} {RULE} {RANDOM_ORDER}"
        ),
        SurvivalCondition("several models", "merged", "merging", "merging", "merged random"),
        SurvivalCondition("several models", "ensemble", "an ensemble in random order", "merging", "ensemble random"),
    )
    metric = run.quantity.metric
    return tuple(condition for condition in possible if run.subjects(condition.measure, metric, condition.task))


def survival(run: RobustnessScores) -> Survival:
    """The matrix of a run; empty where nothing but the training was measured."""
    quantity, tested = run.quantity, conditions(run)
    scores = {
        arm: {
            condition: score
            for condition in tested
            if (score := run.score(condition.measure, quantity.metric, arm, condition.task)) is not None
            and score.low is not None
        }
        for arm in run.arms
    }
    rows = [score for by_condition in scores.values() for score in by_condition.values()]
    in_order = [score for score in rows if score.task == IN_ORDER] or rows
    best = max((quantity.credit(score.value) for score in in_order), default=1.0)
    chance = 0.0 if run.chance is None else quantity.credit(run.chance)
    cells = {
        arm: {condition: _cell(score, quantity, chance, best) for condition, score in by_condition.items()}
        for arm, by_condition in scores.items()
        if by_condition
    }
    return Survival(tested, cells, quantity)


def summary(matrix: Survival) -> str:
    """Who survives random order, in one sentence; empty where no arm was evaluated."""
    groups: dict[Fate, list[str]] = {"survives": [], "in part": [], "lost": []}
    for arm, cells in matrix.cells.items():
        for condition, cell in cells.items():
            if (condition.measure, condition.task) == ("robustness", RANDOM_ORDER):
                groups[cell.fate].append(arm)
    parts = [f"{words} {listed(groups[fate])}" for fate, words in BY_WHOM.items() if groups[fate]]
    return f"Random order is {'; '.join(parts)}." if parts else ""


def sentence(run: RobustnessScores, matrix: Survival, arm: str) -> tuple[str, ...]:
    """What an arm survives, in pieces, numbers marked as `Number`."""
    fates = matrix.fates(arm)
    pieces = [*_levels(run, arm)]
    clauses = [
        f"{verb} {listed([condition.words for condition in fates[fate]])}"
        for fate, verb in VERBS.items()
        if fates[fate]
    ]
    if clauses:
        text = "; ".join(clauses)
        pieces.append(f"{text[0].upper()}{text[1:]}.")
    above = run.score("robustness", run.above.metric, arm, RANDOM_ORDER)
    if above is not None:
        difference = run.above.text(above, signed=True)
        pieces += [" Against the baseline in random order: ", Number(difference), f" {run.above.axis}."]
    return tuple(pieces)


def _levels(run: RobustnessScores, arm: str) -> list[str]:
    ordered, shuffled = run.lead(arm, IN_ORDER), run.lead(arm, RANDOM_ORDER)
    unit = f" {run.quantity.name}" if run.is_language else ""
    if ordered is None or shuffled is None:
        return []
    return [
        Number(run.quantity.bare(ordered)),
        f"{unit} in order, ",
        Number(run.quantity.bare(shuffled)),
        " in random order. ",
    ]


def _half(run: RobustnessScores) -> int | None:
    """The number of layers kept that is nearest to half the depth, among those that were run."""
    counts = {
        count
        for count in range(1, run.depth)
        for condition in (IN_ORDER, RANDOM_ORDER)
        if run.subjects("robustness", run.quantity.metric, f"kept {count} {RULE} {condition}")
    }
    return min(counts, key=lambda count: (abs(2 * count - run.depth), count), default=None)


def _cell(score: Score, quantity: Quantity, chance: float, best: float) -> Cell:
    def share(value: float) -> float:
        return (quantity.credit(value) - chance) / (best - chance) if best > chance else 0.0

    ends = sorted(share(score.value if bound is None else bound) for bound in (score.low, score.high))
    fate: Fate = "survives" if ends[0] >= SURVIVES else "lost" if ends[1] < FADES else "in part"
    return Cell(score, min(1.0, max(0.0, share(score.value))), fate, at_chance=ends[0] <= 0.0)
