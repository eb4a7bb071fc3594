"""What learned when: every schedule as a chart of depth by time."""

from __future__ import annotations

from layerwise.report.arms import arm_slots
from layerwise.report.chapters.chapter import Chapter, card, lead, missing, note
from layerwise.report.data import Evidence
from layerwise.report.figures.lines import lined, telling
from layerwise.report.growth import SCHEDULE, Growth
from layerwise.report.ledger import STATES, phase_rows
from layerwise.report.markup import Safe, element
from layerwise.report.picture import Picture
from layerwise.report.series import Line
from layerwise.report.table import simple_table
from layerwise.report.timetable import timetable
from layerwise.report.wording import counted

TITLE, SHORT = "What learned when", "Schedules"
FEW = 2  # so many charts, or fewer, are drawn larger


def timetables(evidence: Evidence) -> Chapter:
    """A card an arm, the key of the shades, and every phase in a table."""
    found = evidence.growth
    arms = [arm for arm in found.arms if any(found.shares(arm, phase) for phase in found.phases(arm))]
    if not arms:
        return Chapter(SCHEDULE, TITLE, SHORT, (missing("No schedule was written into this run (schedule)."),))
    steps = max(phase.end for arm in arms for phase in found.phases(arm))
    slots = arm_slots(found.arms)
    rows, pictures = phase_rows(found), _importance(found)
    cards = (_card(found, arm, slots[arm], steps) for arm in arms)
    body = (
        lead("Depth by time: the embedding above, the layers downwards, the head below; steps to the right."),
        _key(),
        element("div", *cards, class_="grid" if len(arms) > FEW else "grid pair"),
        note(
            "All charts have one scale of steps. A layer's full cost is forward pass, input gradient and weight"
            " gradient, so at equal FLOPs two charts hold about as much colour. A shade between these is an average:"
            " layers are drawn at random in that phase."
        ),
        *(
            element("div", picture.controls(), card(picture.alternative, picture.html()), class_="spaced")
            for picture in pictures
        ),
        element("details", element("summary", "Every phase"), simple_table(rows.head, rows.body, numeric_from=4)),
    )
    return Chapter(SCHEDULE, TITLE, SHORT, body, pictures)


def _importance(found: Growth) -> tuple[Picture, ...]:
    """What each layer was worth to the model that the planned schedule was made from."""
    if not found.importance:
        return ()
    line = Line("skipped", found.importance, arm_slots(["importance"])["importance"])
    tell = telling("layer {}", "nats per token", found.level, nats=True)
    drawn = lined([line], across="layer", upwards="nats per token, when skipped", tell=tell, height=300, reference=0.0)
    title = "What the schedule by importance was made from: the pilot's loss without each layer"
    return (Picture("importance", title, {(): drawn}, rooted=True, bent=True),)


def _key() -> Safe:
    """A swatch for each share of the full cost that has a meaning, full first."""
    shades = [
        element(
            "span",
            element("i", class_="shade nothing" if share <= 0.0 else "shade", style=f"--share:{100 * share:.0f}%"),
            f" {words} ({_thirds(share)})",
        )
        for share, words in STATES.items()
    ]
    return element("p", *shades, class_="key shades")


def _thirds(share: float) -> str:
    """A share in thirds, as it is written.

    >>> _thirds(2 / 3), _thirds(1.0), _thirds(0.0)
    ('⅔', '1', '0')
    """
    return {0: "0", 1: "⅓", 2: "⅔", 3: "1"}[round(3 * share)]


def _card(found: Growth, arm: str, slot: int, steps: int) -> Safe:
    phases = found.phases(arm)
    name = element("h4", element("i", style=f"--swatch:var(--series-{slot})"), arm)
    numbered = "; ".join(f"{at} {phase.name}" for at, phase in enumerate(phases, start=1))
    caption = numbered if len(phases) > 1 else f"{counted(len(phases), 'phase')}: {numbered[2:]}"
    drawn = element("figure", timetable(found, arm, steps=steps), element("figcaption", caption))
    return element("div", name, drawn, class_="card schedule")
