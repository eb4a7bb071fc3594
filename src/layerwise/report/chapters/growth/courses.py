"""Loss against what it cost: the courses of all arms, on the terms that the reader picks."""

from __future__ import annotations

from collections.abc import Mapping

from layerwise.report.arms import arm_slots
from layerwise.report.chapters.chapter import Chapter, card, lead, legend, missing, note
from layerwise.report.data import Evidence
from layerwise.report.figures.courses import FRONTIER, costed
from layerwise.report.figures.figure import Figure
from layerwise.report.growth import TRAINING
from layerwise.report.outlay import AXES, Losses, courses, frontier
from layerwise.report.picture import Choice, Picture

TITLE, SHORT = "Loss against what it cost", "Courses"
SIGHT = ("the second half", "the whole course")
UPWARDS = "validation loss (nats per token)"


def courses_by_cost(evidence: Evidence) -> Chapter:
    """One figure with two choices: against what, and how much of it."""
    found = evidence.growth
    drawn = {terms: arms for terms in AXES if (arms := courses(found, terms))}
    if not drawn:
        text = "No finished training noted its losses (training): there is no course to draw."
        return Chapter(TRAINING, TITLE, SHORT, (missing(text),))
    frontiers = {terms: frontier(found, terms) for terms in AXES}
    slots = {arm: slot for arm, slot in arm_slots(found.arms).items() if any(arm in arms for arms in drawn.values())}
    picture = _picture(drawn, frontiers, arm_slots(found.arms))
    line = (
        f" The dashed line joins the ends of {FRONTIER}: what uniform training reaches when it is given that cost."
        if any(frontiers.values())
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


def _picture(
    drawn: Mapping[str, Mapping[str, Losses]], frontiers: Mapping[str, Losses], slots: Mapping[str, int]
) -> Picture:
    variants: dict[tuple[int, ...], Figure] = {
        (at, whole): costed(arms, frontiers[terms], slots, across=AXES[terms], upwards=UPWARDS, late=not whole)
        for at, (terms, arms) in enumerate(drawn.items())
        for whole in (0, 1)
    }
    choices = (Choice("Against", tuple(AXES[terms] for terms in drawn)), Choice("Shown", SIGHT))
    return Picture("courses", "Validation loss of every arm against what it cost", variants, choices)
