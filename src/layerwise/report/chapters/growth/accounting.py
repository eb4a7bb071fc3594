"""The accounts: what a step was predicted to cost and took, whether budgets were kept, and what each arm spent."""

from __future__ import annotations

from statistics import fmean

from layerwise.report.arms import arm_slots
from layerwise.report.chapters.chapter import Chapter, card, lead, legend, missing, note
from layerwise.report.data import Evidence
from layerwise.report.fairness import BUDGET_BAR, STEP_BAR, budget_shares
from layerwise.report.figures.dots import Dots, dots
from layerwise.report.figures.forecast import Forecasts, forecast
from layerwise.report.growth import ACCOUNTING, TRAINING, Growth, Phase
from layerwise.report.ledger import cost_rows
from layerwise.report.markup import element
from layerwise.report.outlay import step_shares
from layerwise.report.picture import Picture
from layerwise.report.quantity import PERCENT
from layerwise.report.table import simple_table
from layerwise.results.rows import Score

TITLE, SHORT = "What it cost", "Cost"


def accounting(evidence: Evidence) -> Chapter:
    """Predicted against measured, the budgets, and a row an arm of all that it took."""
    found = evidence.growth
    rows = cost_rows(found)
    pictures = tuple(picture for picture in (_forecast(found), _budgets(found)) if picture is not None)
    if not pictures and len(rows.head) < 2:
        text = "Neither the cost of the phases (accounting) nor that of the trainings (training) was noted."
        return Chapter(ACCOUNTING, TITLE, SHORT, (missing(text),))
    slots = {arm: slot for arm, slot in arm_slots(found.arms).items() if found.phases(arm)}
    forecasts = tuple(picture.name for picture in pictures if picture.name == "forecast")
    cards = [card(picture.alternative, picture.html()) for picture in pictures]
    body = (
        lead("FLOPs are predicted from the schedule; seconds are those of this machine, and of nothing else."),
        *((legend(slots, forecasts, noun="Arms"),) if forecasts else ()),
        *((element("div", *cards, class_="grid pair"),) if cards else ()),
        element("div", simple_table(rows.head, rows.body), class_="spaced"),
        note(
            "A mark in the left figure is a phase: its step's FLOPs as the schedule has them, and the median time that"
            f" it took, both over those of a uniform step; the grey band is {100 * STEP_BAR:g} % to either side. Rows"
            " of the table are means over seeds, in brackets the share of uniform's FLOPs; all seconds hold"
            " validating and saving too."
        ),
    )
    return Chapter(ACCOUNTING, TITLE, SHORT, body, pictures)


def _forecast(found: Growth) -> Picture | None:
    forecasts: Forecasts = {arm: both for arm in found.arms if (both := _pairs(found, arm))}
    if not forecasts:
        return None
    drawn = forecast(forecasts, arm_slots(found.arms), bar=STEP_BAR)
    return Picture("forecast", "A step's time against its prediction", {(): drawn})


def _pairs(found: Growth, arm: str) -> dict[Phase, tuple[Score, Score]]:
    predicted, measured = (step_shares(found, arm, metric) for metric in ("predicted", "measured"))
    return {phase: (predicted[phase], score) for phase, score in measured.items() if phase in predicted}


def _budgets(found: Growth) -> Picture | None:
    """Every training's FLOPs over those of uniform with its seed, the budget being the dotted line."""
    slots = arm_slots(found.arms)
    shares: dict[str, list[Score]] = {}
    for name, share in budget_shares(found).items():
        shares.setdefault(name.rpartition("/")[0], []).append(Score(TRAINING, name, "all", "flops", PERCENT * share))
    if not shares:
        return None
    rows = [Dots(arm, slots[arm], {arm: _ranged(arm, scores)}, {arm: scores}) for arm, scores in shares.items()]
    edge = max(2 * PERCENT * BUDGET_BAR, *(abs(s.value - PERCENT) for of in shares.values() for s in of))
    span = (PERCENT - 1.1 * edge, PERCENT + 1.1 * edge)
    allowed = (PERCENT * (1 - BUDGET_BAR), PERCENT * (1 + BUDGET_BAR))
    figure = dots(rows, across="% of uniform's FLOPs", reference=PERCENT, span=span, allowed=allowed)
    return Picture("budgets", "FLOPs against uniform's budget; the band is 1 %", {(): figure})


def _ranged(arm: str, scores: list[Score]) -> Score:
    """The mean of the seeds with their range: a budget is kept by each training, not on average."""
    values = [score.value for score in scores]
    return Score(TRAINING, arm, "all", "flops", fmean(values), min(values), max(values))
