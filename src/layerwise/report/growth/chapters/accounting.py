"""The accounts: what a step was predicted to cost and took, whether budgets were kept, and what each arm spent."""

from __future__ import annotations

from statistics import fmean

from layerwise.report.arms import arm_slots
from layerwise.report.evidence import Evidence
from layerwise.report.figures.dot_plot import DotArm, dots
from layerwise.report.figures.scatter import Forecasts, phase_scatter
from layerwise.report.growth.comparison_checks import BUDGET_BAR, STEP_BAR, budget_shares
from layerwise.report.growth.lookup import ACCOUNTING, TRAINING, GrowthScores, PhaseSteps
from layerwise.report.growth.tables import cost_rows
from layerwise.report.growth.training_cost import step_shares
from layerwise.report.page.chapter import Chapter, Heading, card, lead, legend, note, spaced
from layerwise.report.page.figure_slot import Picture
from layerwise.report.page.markup import element
from layerwise.report.quantity import PERCENT
from layerwise.results.rows import Score

HEADING = Heading(ACCOUNTING, "What it cost", "Cost")


def accounting(evidence: Evidence) -> Chapter:
    """Predicted against measured, the budgets, and a row an arm of all that it took."""
    run = evidence.growth
    rows = cost_rows(run)
    pictures = tuple(picture for picture in (_forecast(run), _budgets(run)) if picture is not None)
    if not pictures and len(rows.head) < 2:
        return HEADING.missing(
            "Neither the cost of the phases (accounting) nor that of the trainings (training) was noted."
        )
    slots = {arm: slot for arm, slot in arm_slots(run.arms).items() if run.phases(arm)}
    forecasts = tuple(picture.name for picture in pictures if picture.name == "forecast")
    cards = [card(picture.alternative, picture.html()) for picture in pictures]
    body = (
        lead("FLOPs are predicted from the schedule; seconds are those of this machine, and of nothing else."),
        *((legend(slots, forecasts, noun="Arms"),) if forecasts else ()),
        *((element("div", *cards, class_="grid pair"),) if cards else ()),
        spaced(rows.html()),
        note(
            "A mark in the left figure is a phase: its step's FLOPs as the schedule has them, and the median time that"
            f" it took, both over those of a uniform step; the grey band is {100 * STEP_BAR:g} % to either side. Rows"
            " of the table are means over seeds, in brackets the share of uniform's FLOPs; all seconds hold"
            " validating and saving too."
        ),
    )
    return HEADING.chapter(body, pictures)


def _forecast(run: GrowthScores) -> Picture | None:
    forecasts: Forecasts = {arm: both for arm in run.arms if (both := _pairs(run, arm))}
    if not forecasts:
        return None
    drawn = phase_scatter(forecasts, arm_slots(run.arms), bar=STEP_BAR)
    return Picture("forecast", "A step's time against its prediction", {(): drawn})


def _pairs(run: GrowthScores, arm: str) -> dict[PhaseSteps, tuple[Score, Score]]:
    predicted, measured = (step_shares(run, arm, metric) for metric in ("predicted", "measured"))
    return {phase: (predicted[phase], score) for phase, score in measured.items() if phase in predicted}


def _budgets(run: GrowthScores) -> Picture | None:
    """Every training's FLOPs over those of uniform with its seed, the budget being the dotted line."""
    slots = arm_slots(run.arms)
    shares: dict[str, list[Score]] = {}
    for name, share in budget_shares(run).items():
        shares.setdefault(name.rpartition("/")[0], []).append(Score(TRAINING, name, "all", "flops", PERCENT * share))
    if not shares:
        return None
    rows = [DotArm(arm, slots[arm], {arm: _ranged(arm, scores)}, {arm: scores}) for arm, scores in shares.items()]
    edge = max(2 * PERCENT * BUDGET_BAR, *(abs(s.value - PERCENT) for of in shares.values() for s in of))
    span = (PERCENT - 1.1 * edge, PERCENT + 1.1 * edge)
    allowed = (PERCENT * (1 - BUDGET_BAR), PERCENT * (1 + BUDGET_BAR))
    figure = dots(rows, across="% of uniform's FLOPs", reference=PERCENT, span=span, allowed=allowed)
    return Picture("budgets", "FLOPs against uniform's budget; the band is 1 %", {(): figure})


def _ranged(arm: str, scores: list[Score]) -> Score:
    """The mean of the seeds with their range: a budget is kept by each training, not on average."""
    values = [score.value for score in scores]
    return Score(TRAINING, arm, "all", "flops", fmean(values), min(values), max(values))
