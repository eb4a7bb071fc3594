"""Which arm survives what: the matrix of the first chapter, and the sentences that its intervals support.

Each trial changes the model and asks what is left of its accuracy. What is left is measured on one scale for the whole
run: 0 is chance, 1 is the best arm in order, both as credit (see `quantity`). An arm *survives* a trial when even the
low end of its interval keeps three quarters of that way, it is *lost* when even the high end keeps less than one
quarter, and all else is survival *in part*: so the words never say more than the intervals do. A number without an
interval is left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from layerwise.report.headline import FADES, SURVIVES, Number
from layerwise.report.quantity import Quantity
from layerwise.report.robustness import ANY_ORDER, IN_ORDER, Robustness
from layerwise.report.wording import counted, listed
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
class Trial:
    """Something to survive: its place in the matrix (`group`, `name`), its words in a sentence, and its rows."""

    group: str
    name: str
    words: str
    measure: str
    task: str


@dataclass(frozen=True, slots=True)
class Cell:
    """An arm under a trial: the score, the share that is left of the best arm in order, and what became of it."""

    score: Score
    share: float
    fate: Fate
    at_chance: bool


@dataclass(frozen=True, slots=True)
class Survival:
    """The matrix: arms by trials, only those that have a cell."""

    trials: tuple[Trial, ...]
    cells: Mapping[str, Mapping[Trial, Cell]]
    quantity: Quantity

    def fates(self, arm: str) -> dict[Fate, list[Trial]]:
        """The trials of an arm by what became of it; training in order is no trial."""
        found: dict[Fate, list[Trial]] = {"survives": [], "in part": [], "lost": []}
        for trial, cell in self.cells[arm].items():
            if trial.task != IN_ORDER:
                found[cell.fate].append(trial)
        return found


def trials(found: Robustness) -> tuple[Trial, ...]:
    """What is asked of every arm, those with rows first to last: order, half of the layers, layers of other models."""
    half = _half(found)
    kept = "" if half is None else f"{half} of {found.depth} layers"
    lost = "" if half is None else f"the loss of {counted(found.depth - half, 'layer')}"
    asked = (
        Trial("all layers", "in order", "its own order", "robustness", IN_ORDER),
        Trial("all layers", "any order", "any order", "robustness", ANY_ORDER),
        Trial(kept, "in order", lost, "robustness", f"kept {half} {RULE} {IN_ORDER}"),
        Trial(kept, "any order", f"{lost} in any order", "robustness", f"kept {half} {RULE} {ANY_ORDER}"),
        Trial("several models", "merged", "merging", "merging", "merged arbitrary"),
        Trial("several models", "ensemble", "an ensemble in any order", "merging", "ensemble arbitrary"),
    )
    metric = found.quantity.metric
    return tuple(trial for trial in asked if found.subjects(trial.measure, metric, trial.task))


def survival(found: Robustness) -> Survival:
    """The matrix of a run; empty where nothing but the training was measured."""
    quantity, asked = found.quantity, trials(found)
    scores = {
        arm: {
            trial: score
            for trial in asked
            if (score := found.score(trial.measure, quantity.metric, arm, trial.task)) is not None
            and score.low is not None
        }
        for arm in found.arms
    }
    rows = [score for by_trial in scores.values() for score in by_trial.values()]
    in_order = [score for score in rows if score.task == IN_ORDER] or rows
    best = max((quantity.credit(score.value) for score in in_order), default=1.0)
    chance = 0.0 if found.chance is None else quantity.credit(found.chance)
    cells = {
        arm: {trial: _cell(score, quantity, chance, best) for trial, score in by_trial.items()}
        for arm, by_trial in scores.items()
        if by_trial
    }
    return Survival(asked, cells, quantity)


def summary(matrix: Survival) -> str:
    """Who survives any order, in one sentence; empty where no arm was asked."""
    groups: dict[Fate, list[str]] = {"survives": [], "in part": [], "lost": []}
    for arm, cells in matrix.cells.items():
        for trial, cell in cells.items():
            if (trial.measure, trial.task) == ("robustness", ANY_ORDER):
                groups[cell.fate].append(arm)
    parts = [f"{words} {listed(groups[fate])}" for fate, words in BY_WHOM.items() if groups[fate]]
    return f"Any order is {'; '.join(parts)}." if parts else ""


def sentence(found: Robustness, matrix: Survival, arm: str) -> tuple[str, ...]:
    """What an arm survives, in pieces, numbers marked as `Number`."""
    fates = matrix.fates(arm)
    pieces = [*_levels(found, arm)]
    told = [f"{verb} {listed([trial.words for trial in fates[fate]])}" for fate, verb in VERBS.items() if fates[fate]]
    if told:
        text = "; ".join(told)
        pieces.append(f"{text[0].upper()}{text[1:]}.")
    above = found.score("robustness", found.above.metric, arm, ANY_ORDER)
    if above is not None:
        told_above = found.above.told(above, signed=True)
        pieces += [" Against the baseline in any order: ", Number(told_above), f" {found.above.axis}."]
    return tuple(pieces)


def _levels(found: Robustness, arm: str) -> list[str]:
    ordered, shuffled = found.lead(arm, IN_ORDER), found.lead(arm, ANY_ORDER)
    unit = f" {found.quantity.name}" if found.is_language else ""
    if ordered is None or shuffled is None:
        return []
    return [
        Number(found.quantity.bare(ordered)),
        f"{unit} in order, ",
        Number(found.quantity.bare(shuffled)),
        " in any order. ",
    ]


def _half(found: Robustness) -> int | None:
    """The number of layers kept that is nearest to half the depth, among those that were run."""
    counts = {
        count
        for count in range(1, found.depth)
        for condition in (IN_ORDER, ANY_ORDER)
        if found.subjects("robustness", found.quantity.metric, f"kept {count} {RULE} {condition}")
    }
    return min(counts, key=lambda count: (abs(2 * count - found.depth), count), default=None)


def _cell(score: Score, quantity: Quantity, chance: float, best: float) -> Cell:
    def share(value: float) -> float:
        return (quantity.credit(value) - chance) / (best - chance) if best > chance else 0.0

    ends = sorted(share(score.value if bound is None else bound) for bound in (score.low, score.high))
    fate: Fate = "survives" if ends[0] >= SURVIVES else "lost" if ends[1] < FADES else "in part"
    return Cell(score, min(1.0, max(0.0, share(score.value))), fate, at_chance=ends[0] <= 0.0)
