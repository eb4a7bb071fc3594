"""The learning rates that were tried for both sides, and the ones that were taken."""

from __future__ import annotations

from collections.abc import Sequence

from layerwise.report.arms import arm_slots
from layerwise.report.evidence import Evidence
from layerwise.report.figures.axis import Line
from layerwise.report.figures.lines import hover_text, lined
from layerwise.report.growth.learning_rates import tunings
from layerwise.report.growth.lookup import RATES, UNIFORM
from layerwise.report.growth.tables import rate_rows
from layerwise.report.page.chapter import Chapter, Heading, card, lead, legend, note
from layerwise.report.page.figure_slot import Picture
from layerwise.report.page.markup import element
from layerwise.report.page.wording import listed

HEADING = Heading(RATES, "The learning rates that were tried", "Rates")
UPWARDS = "validation loss (nats per token)"


def rates(evidence: Evidence) -> Chapter:
    """Validation loss by learning rate, a line an arm, the chosen rate filled; and the numbers."""
    run = evidence.growth
    swept = tunings(run)
    if not swept:
        return HEADING.missing(
            "No learning rates were swept in this run (rates): a difference between arms may be one of their rates."
            " layerwise train growth-study sweeps them for both sides."
        )
    slots = arm_slots([*run.arms, *(tuning.arm for tuning in swept)])
    shown = [
        Line(t.arm, t.losses, slots[t.arm], frozenset(rate for rate in t.losses if rate != t.chosen)) for t in swept
    ]
    describe = hover_text("learning rate {}", "nats per token", run.level)
    figure = lined(shown, across="learning rate", upwards=UPWARDS, describe=describe, sizes=True)
    picture = Picture("rates", "Validation loss by learning rate", {(): figure})
    rows = rate_rows(run)
    table = rows.html()
    bounded = any(score.low is not None for t in swept for score in t.losses.values())
    body = (
        lead(f"A gain over a badly tuned side is none. {_sides([tuning.arm for tuning in swept])}"),
        legend({tuning.arm: slots[tuning.arm] for tuning in swept}, (picture.name,), noun="Arms"),
        element("div", card(picture.alternative, picture.html()), element("div", table), class_="grid pair"),
        note(
            "The filled mark is the rate that was taken, open ones were tried; an arm without a sweep takes the rate"
            " of another of its side."
            + ("" if bounded else " One seed chose, so there is no interval: the sweep chooses and proves nothing.")
        ),
    )
    return HEADING.chapter(body, (picture,))


def _sides(arms: Sequence[str]) -> str:
    """Which sides were tuned.

    >>> _sides(["uniform", "importance"]), _sides(["uniform"])
    ('Both sides were tuned, by loss on validation text.', 'Only uniform was tuned.')
    """
    if UNIFORM in arms and len(arms) > 1:
        return "Both sides were tuned, by loss on validation text."
    return f"Only {listed(arms)} {'was' if len(arms) == 1 else 'were'} tuned."
