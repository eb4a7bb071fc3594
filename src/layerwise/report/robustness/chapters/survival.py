"""Who survives what: one matrix of arms by conditions, coloured by what is left, and a sentence for each arm."""

from __future__ import annotations

from itertools import groupby

from layerwise.report.arms import arm_slots
from layerwise.report.evidence import Evidence
from layerwise.report.page.answers import pieces
from layerwise.report.page.chapter import Chapter, Heading, folded, lead, note
from layerwise.report.page.markup import Safe, element
from layerwise.report.robustness.chapters.absence import absent
from layerwise.report.robustness.findings import Cell, Survival, SurvivalCondition, sentence, summary
from layerwise.report.robustness.findings import survival as survived
from layerwise.report.robustness.lookup import RobustnessScores
from layerwise.report.robustness.tables import survival_rows

HEADING = Heading("robustness", "Who survives what", "Survival")


def survival(evidence: Evidence) -> Chapter:
    """The matrix, the sentences under it, and every number in a table to open."""
    run = evidence.robustness
    matrix = survived(run)
    if not matrix.cells:
        return absent(evidence, HEADING, "No arm was tested in this run (robustness).")
    numbers = survival_rows(run, matrix)
    body = (
        lead(summary(matrix) or "The arms of this run, and the conditions that they were evaluated under."),
        _matrix(run, matrix),
        _key(run),
        element("ul", *(_sentence(run, matrix, arm) for arm in matrix.cells), class_="fates"),
        folded("Every number", numbers.html()),
    )
    return HEADING.chapter(body)


def _matrix(run: RobustnessScores, matrix: Survival) -> Safe:
    slots = arm_slots(run.arms)
    groups = [
        element("th", name, scope="colgroup", colspan=str(len(list(members))))
        for name, members in groupby(matrix.conditions, key=lambda condition: condition.group)
    ]
    names = [element("th", condition.name, scope="col") for condition in matrix.conditions]
    corner = element("td", run.quantity.axis, class_="corner", rowspan="2")
    rows = [
        element("tr", _arm(arm, slots[arm]), *(_cell(matrix, arm, condition) for condition in matrix.conditions))
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


def _cell(matrix: Survival, arm: str, condition: SurvivalCondition) -> Safe:
    cell = matrix.cells[arm].get(condition)
    if cell is None:
        return element("td", "–", class_="unmeasured", title=f"{arm}: {condition.words} was not measured")
    value, _, interval = matrix.quantity.text(cell.score).partition(" [")
    number = value.removesuffix(matrix.quantity.sign)
    small = f"[{interval}" if interval else ""
    return element(
        "td",
        element("b", number),
        element("small", small),
        class_=cell.fate.replace(" ", "-") + (" at-chance" if cell.at_chance else ""),
        style=f"--left:{cell.share:.3f}",
        title=_hint(arm, condition, cell),
    )


def _hint(arm: str, condition: SurvivalCondition, cell: Cell) -> str:
    verdict = "not distinguishable from chance" if cell.at_chance else cell.fate
    way = f"{100 * cell.share:.0f} % of the way from chance to the best"
    return f"{arm}, {condition.group}, {condition.name}: {verdict}; {way}"


def _key(run: RobustnessScores) -> Safe:
    chance = "nothing" if run.reference is None else f"chance ({run.reference:.3g}{run.quantity.sign})"
    scale = "credit, the geometric mean of the probabilities of the right tokens" if run.is_language else "accuracy"
    return note(
        element("span", class_="tone lost-tone"),
        f" {chance} ",
        element("span", class_="tone ramp-tone"),
        f" the best arm in order. The colour is the share of that way that is left, in {scale}. An arm survives when"
        " even the low end of its interval keeps three quarters of it, and is lost when even the high end keeps less"
        " than one quarter. Intervals are over examples, and over seeds where there are several. Of layers left out,"
        " those kept are evenly spaced; merged models take any layer from any model; an ensemble runs in random order.",
    )


def _sentence(run: RobustnessScores, matrix: Survival, arm: str) -> Safe:
    slot = arm_slots(run.arms)[arm]
    name = element("b", element("i", style=f"--swatch:var(--series-{slot})"), arm)
    return element("li", name, element("p", *pieces(sentence(run, matrix, arm))))
