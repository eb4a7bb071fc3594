"""Loss against what it cost: the courses of all arms, on the terms that the reader picks."""

from __future__ import annotations

from layerwise.report.arms import arm_slots
from layerwise.report.chapters.chapter import Chapter, card, lead, legend, missing, note
from layerwise.report.data import Evidence
from layerwise.report.figures.courses import FRONTIER, costed
from layerwise.report.figures.figure import Figure
from layerwise.report.growth import TRAINING, Growth
from layerwise.report.outlay import AXES, courses, frontier
from layerwise.report.picture import Choice, Picture

TITLE, SHORT = "Loss against what it cost", "Courses"
SIGHT = ("the second half", "the whole course")
UPWARDS = "validation loss (nats per token)"


def courses_by_cost(evidence: Evidence) -> Chapter:
    """One figure with two choices: against what, and how much of it."""
    found = evidence.growth
    picture = _picture(found)
    if picture is None:
        text = "No finished training noted its losses (training): there is no course to draw."
        return Chapter(TRAINING, TITLE, SHORT, (missing(text),))
    slots = {arm: slot for arm, slot in arm_slots(found.arms).items() if any(arm in courses(found, t) for t in AXES)}
    line = (
        f" The dashed line joins the ends of {FRONTIER}: what uniform training reaches when it is given that cost."
        if any(frontier(found, terms) for terms in AXES)
        else " Uniform was trained for one length, or not at all: there is no frontier to judge the ends by."
    )
    body = (
        lead("Lower is better. Arms are comparable where they end: until then their rates have not come down."),
        picture.controls(),
        legend(slots, (picture.name,), noun="Arms"),
        card(None, picture.html()),
        note(
            "A line is the mean of an arm's seeds and its band their whole range; the large mark is where it ends."
            f"{line} FLOPs and seconds by a step follow the phases: a phase that freezes layers spends less."
        ),
    )
    return Chapter(TRAINING, TITLE, SHORT, body, (picture,))


def _picture(found: Growth) -> Picture | None:
    slots = arm_slots(found.arms)
    drawn = {terms: courses(found, terms) for terms in AXES}
    shown = {terms: arms for terms, arms in drawn.items() if arms}
    if not shown:
        return None
    variants: dict[tuple[int, ...], Figure] = {
        (at, whole): costed(arms, frontier(found, terms), slots, across=AXES[terms], upwards=UPWARDS, late=not whole)
        for at, (terms, arms) in enumerate(shown.items())
        for whole in (0, 1)
    }
    choices = (Choice("Against", tuple(AXES[terms] for terms in shown)), Choice("Shown", SIGHT))
    return Picture("courses", "Validation loss of every arm against what it cost", variants, choices)
