"""Who survives what: one matrix of arms by trials, coloured by what is left, and a sentence for each arm."""

from __future__ import annotations

from itertools import groupby

from layerwise.report.arms import arm_slots
from layerwise.report.chapters.chapter import Chapter, lead, note
from layerwise.report.chapters.robustness.absence import absent
from layerwise.report.data import Evidence
from layerwise.report.headline import Number
from layerwise.report.markup import Safe, element, measured
from layerwise.report.robustness import Robustness
from layerwise.report.standings import survival_rows
from layerwise.report.survival import Cell, Survival, Trial, sentence, summary
from layerwise.report.survival import survival as survived
from layerwise.report.table import simple_table

ANCHOR, TITLE, SHORT = "robustness", "Who survives what", "Survival"


def survival(evidence: Evidence) -> Chapter:
    """The matrix, the sentences under it, and every number in a table to open."""
    found = evidence.robustness
    matrix = survived(found)
    if not matrix.cells:
        return absent(evidence, ANCHOR, TITLE, SHORT, "No arm was tested in this run (robustness).")
    numbers = survival_rows(found, matrix)
    body = (
        lead(summary(matrix) or "The arms of this run, and what was asked of them."),
        _matrix(found, matrix),
        _key(found),
        element("ul", *(_told(found, matrix, arm) for arm in matrix.cells), class_="fates"),
        element(
            "details", element("summary", "Every number"), simple_table(numbers.head, numbers.body, numeric_from=2)
        ),
    )
    return Chapter(ANCHOR, TITLE, SHORT, body)


def _matrix(found: Robustness, matrix: Survival) -> Safe:
    slots = arm_slots(found.arms)
    groups = [
        element("th", name, scope="colgroup", colspan=str(len(list(members))))
        for name, members in groupby(matrix.trials, key=lambda trial: trial.group)
    ]
    names = [element("th", trial.name, scope="col") for trial in matrix.trials]
    corner = element("td", found.quantity.axis, class_="corner", rowspan="2")
    rows = [
        element("tr", _arm(arm, slots[arm]), *(_cell(matrix, arm, trial) for trial in matrix.trials))
        for arm in matrix.cells
    ]
    table = element(
        "table",
        element("caption", "Arms by what they must survive", class_="visually-hidden"),
        element("thead", element("tr", corner, *groups), element("tr", *names)),
        element("tbody", *rows),
        class_="survival",
    )
    return element("div", table, class_="scroll bare", tabindex="0", role="region", aria_label="Survival by arm")


def _arm(arm: str, slot: int) -> Safe:
    return element("th", element("i", style=f"--swatch:var(--series-{slot})"), arm, scope="row")


def _cell(matrix: Survival, arm: str, trial: Trial) -> Safe:
    cell = matrix.cells[arm].get(trial)
    if cell is None:
        return element("td", "–", class_="unmeasured", title=f"{arm}: {trial.words} was not measured")
    value, _, interval = matrix.quantity.told(cell.score).partition(" [")
    number = value.removesuffix(matrix.quantity.sign)
    small = f"[{interval}" if interval else ""
    return element(
        "td",
        element("b", number),
        element("small", small),
        class_=cell.fate.replace(" ", "-") + (" at-chance" if cell.at_chance else ""),
        style=f"--left:{cell.share:.3f}",
        title=_hint(arm, trial, cell),
    )


def _hint(arm: str, trial: Trial, cell: Cell) -> str:
    verdict = "not told apart from chance" if cell.at_chance else cell.fate
    return f"{arm}, {trial.group}, {trial.name}: {verdict}; {100 * cell.share:.0f} % of the way from chance to the best"


def _key(found: Robustness) -> Safe:
    chance = "nothing" if found.reference is None else f"chance ({found.reference:.3g}{found.quantity.sign})"
    scale = "credit, the geometric mean of the probabilities of the right tokens" if found.is_language else "accuracy"
    return note(
        element("span", class_="tone lost-tone"),
        f" {chance} ",
        element("span", class_="tone ramp-tone"),
        f" the best arm in order. The colour is the share of that way that is left, in {scale}. An arm survives when"
        " even the low end of its interval keeps three quarters of it, and is lost when even the high end keeps less"
        " than one quarter. Intervals are over seeds where there are several, else over examples. Of layers left out,"
        " those kept are evenly spaced; merged models take any layer from any model; an ensemble runs in any order.",
    )


def _told(found: Robustness, matrix: Survival, arm: str) -> Safe:
    slot = arm_slots(found.arms)[arm]
    pieces = (measured(piece) if isinstance(piece, Number) else piece for piece in sentence(found, matrix, arm))
    name = element("b", element("i", style=f"--swatch:var(--series-{slot})"), arm)
    return element("li", name, element("p", *pieces))
