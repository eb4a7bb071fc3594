"""Loss against what it cost: the courses of all arms, on the terms that the reader picks."""

from __future__ import annotations

from collections.abc import Mapping

from layerwise.report.arms import arm_slots
from layerwise.report.evidence import Evidence
from layerwise.report.figures.figure import Figure
from layerwise.report.figures.loss_vs_cost import FRONTIER, costed
from layerwise.report.growth.lookup import TRAINING
from layerwise.report.growth.training_cost import AXES, Losses, frontier, loss_curves
from layerwise.report.page.chapter import Chapter, Heading, card, lead, legend, note
from layerwise.report.page.figure_slot import Choice, Picture

HEADING = Heading(TRAINING, "Loss against what it cost", "Courses")
SIGHT = ("the second half", "the whole course")
UPWARDS = "validation loss (nats per token)"


def loss_vs_cost(evidence: Evidence) -> Chapter:
    """One figure with two choices: against what, and how much of it."""
    run = evidence.growth
    drawn = {terms: arms for terms in AXES if (arms := loss_curves(run, terms))}
    if not drawn:
        return HEADING.missing("No finished training noted its losses (training): there is no course to draw.")
    frontiers = {terms: frontier(run, terms) for terms in AXES}
    slots = {arm: slot for arm, slot in arm_slots(run.arms).items() if any(arm in arms for arms in drawn.values())}
    picture = _picture(drawn, frontiers, arm_slots(run.arms))
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
    return HEADING.chapter(body, (picture,))


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
