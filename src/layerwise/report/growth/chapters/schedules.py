"""What learned when: every schedule as a chart of depth by time."""

from __future__ import annotations

from layerwise.report.arms import arm_slots
from layerwise.report.evidence import Evidence
from layerwise.report.figures.axis import Line
from layerwise.report.figures.lines import hover_text, lined
from layerwise.report.growth.lookup import SCHEDULE, GrowthScores
from layerwise.report.growth.schedule_chart import schedule_diagram
from layerwise.report.growth.tables import STATES, phase_rows
from layerwise.report.page.chapter import Chapter, Heading, card, folded, lead, note, spaced
from layerwise.report.page.figure_slot import Picture
from layerwise.report.page.markup import Safe, element
from layerwise.report.page.wording import counted

HEADING = Heading(SCHEDULE, "What learned when", "Schedules")
FEW = 2  # so many charts, or fewer, are drawn larger


def schedules(evidence: Evidence) -> Chapter:
    """A card an arm, the key of the shades, and every phase in a table."""
    run = evidence.growth
    arms = [arm for arm in run.arms if any(run.shares(arm, phase) for phase in run.phases(arm))]
    if not arms:
        return HEADING.missing("No schedule was written into this run (schedule).")
    steps = max(phase.end for arm in arms for phase in run.phases(arm))
    slots = arm_slots(run.arms)
    rows, pictures = phase_rows(run), _importance(run)
    cards = (_card(run, arm, slots[arm], steps) for arm in arms)
    body = (
        lead("Depth by time: the embedding above, the layers downwards, the head below; steps to the right."),
        _key(),
        element("div", *cards, class_="grid" if len(arms) > FEW else "grid pair"),
        note(
            "All charts have one scale of steps. A layer's full cost is forward pass, input gradient and weight"
            " gradient, so at equal FLOPs two charts hold about as much colour. A shade between these is an average:"
            " layers are drawn at random in that phase."
        ),
        *(spaced(picture.controls(), card(picture.alternative, picture.html())) for picture in pictures),
        folded("Every phase", rows.html()),
    )
    return HEADING.chapter(body, pictures)


def _importance(run: GrowthScores) -> tuple[Picture, ...]:
    """What each layer was worth to the model that the planned schedule was made from."""
    if not run.importance:
        return ()
    line = Line("skipped", run.importance, arm_slots(["importance"])["importance"])
    describe = hover_text("layer {}", "nats per token", run.level, nats=True)
    drawn = lined(
        [line], across="layer", upwards="nats per token, when skipped", describe=describe, height=300, reference=0.0
    )
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


def _card(run: GrowthScores, arm: str, slot: int, steps: int) -> Safe:
    phases = run.phases(arm)
    name = element("h4", element("i", style=f"--swatch:var(--series-{slot})"), arm)
    numbered = "; ".join(f"{at} {phase.name}" for at, phase in enumerate(phases, start=1))
    caption = numbered if len(phases) > 1 else f"{counted(len(phases), 'phase')}: {numbered[2:]}"
    drawn = element("figure", schedule_diagram(run, arm, steps=steps), element("figcaption", caption))
    return element("div", name, drawn, class_="card schedule")
