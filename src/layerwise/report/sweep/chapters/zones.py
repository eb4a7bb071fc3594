"""The zones of the depth, as trained and under other plans, and how much the states vary."""

from __future__ import annotations

from layerwise.report.evidence import Evidence
from layerwise.report.figures.zones import variance_by_depth, zone_map
from layerwise.report.page.chapter import Chapter, Heading, card, lead, note, spaced
from layerwise.report.page.figure_slot import Picture
from layerwise.report.page.markup import element
from layerwise.report.page.wording import label
from layerwise.report.sweep.zones import PlanZones, plan_zones, zone_table

MOST_MAPS = 8
LONGEST = 34  # characters of a plan over a map
HEADING = Heading("zones", "Zones of the depth", "Zones")


def zones(evidence: Evidence) -> Chapter:
    """A map for each plan with its zones framed, the variance by depth, and the table of zones."""
    compared = [each for each in plan_zones(evidence) if each.variance]
    if not compared:
        return HEADING.missing("The hidden states under the plans were not compared in this run.")
    named = [(_name(evidence, each), each) for each in compared[:MOST_MAPS]]
    low = min((value for _, each in named for row in each.cosine for value in row if value is not None), default=0.0)
    maps = [
        (name, Picture(f"zones-{number}", f"Cosine of the states, {name}", {(): zone_map(each, max(0.0, low))}))
        for number, (name, each) in enumerate(named)
    ]
    variance = Picture("variance", "Variance of the hidden states by depth", {(): variance_by_depth(named)})
    shown = [card(name, picture.html()) for name, picture in maps]
    shown.append(card("Variance over the width, mean over tokens", variance.html(), wide=True))
    rest = len(compared) - len(named)
    body = (
        lead("A zone is a run of states that are more alike, at equal distance, than they are with the states around."),
        element("div", *shown, class_="grid"),
        *((note(f"{rest} more plans are in the table."),) if rest else ()),
        spaced(zone_table(evidence).html()),
        note(
            "State 1 is the one after the first stage of the plan. Attention sinks are left out. In any model states"
            " are less alike the farther apart they are, so that a picture shows blocks wherever one looks. A border"
            " counts where walks with steps like the measured ones separate as much in less than 1 of 100 cases, and"
            " where at equal distance it is worth 0.02 of cosine; the contrast has an interval over"
            f" {evidence.units}. Fewer than 10 states are not cut."
        ),
    )
    return HEADING.chapter(body, (*(picture for _, picture in maps), variance))


def _name(evidence: Evidence, each: PlanZones) -> str:
    record = evidence.records.get(each.plan)
    if record is not None and record.family == "identity":
        return "As trained"
    if record is not None and record.strategy != "given":
        return f"{label(record.strategy)}, {record.family}".replace("_", " ")
    return each.plan if len(each.plan) <= LONGEST else f"{each.plan[: LONGEST - 1]}…"
