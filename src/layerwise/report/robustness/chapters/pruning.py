"""How many layers an arm needs: accuracy against the number of layers kept, in order and in random order."""

from __future__ import annotations

from collections.abc import Iterator

from layerwise.report.arms import arm_slots
from layerwise.report.evidence import Evidence
from layerwise.report.figures.axis import Line
from layerwise.report.figures.figure import Figure
from layerwise.report.figures.frame import limits
from layerwise.report.figures.lines import hover_text, lined
from layerwise.report.page.chapter import Chapter, Heading, card, lead, legend, note
from layerwise.report.page.figure_slot import Choice, Picture
from layerwise.report.page.markup import element
from layerwise.report.robustness.chapters.absence import absent
from layerwise.report.robustness.lookup import CONDITIONS, RULES, RobustnessScores

HEADING = Heading("layers-kept", "How many layers are needed", "Pruning")
HEIGHT = 420


def pruning(evidence: Evidence) -> Chapter:
    """Two figures, the orders; a choice, which layers are kept."""
    run = evidence.robustness
    lines = {
        (rule, condition): drawn
        for rule in RULES
        for condition in CONDITIONS
        if (drawn := _lines(run, rule, condition))
    }
    if not lines:
        return absent(evidence, HEADING, "No layers were left out in this run (robustness, kept).")
    rules = tuple(rule for rule in RULES if any(rule == used for used, _ in lines))
    choice = (Choice("Which layers are kept", tuple(RULES[rule] for rule in rules)),)
    span = run.quantity.span or limits(_bounds(run, lines))
    shown: list[Picture] = []
    for condition in CONDITIONS:
        if variants := _variants(run, lines, rules, condition, span):
            leader = shown[0].name if shown else None
            words = f"By the number of layers kept, {CONDITIONS[condition]}"
            shown.append(Picture(f"kept-{condition}", words, variants, choice, leader=leader))
    arms = {line.name for drawn in lines.values() for line in drawn}
    slots = {arm: slot for arm, slot in arm_slots(run.arms).items() if arm in arms}
    body = (
        lead("From all of its layers down to one. No weights change: the same model, with fewer of its layers."),
        shown[0].controls(),
        legend(slots, tuple(picture.name for picture in shown)),
        element("div", *(card(_title(picture), picture.html()) for picture in shown), class_="grid pair"),
        note(
            "The arm “retrained” is refined anew at every number of layers, with evenly spaced layers alone: what can"
            " be had for the price of training again."
            if "retrained" in arms
            else "Ribbons are intervals over examples, and over seeds where there are several.",
            "" if run.reference is None else " The dotted line is chance.",
        ),
    )
    return HEADING.chapter(body, tuple(shown))


def _title(picture: Picture) -> str:
    return picture.alternative.rpartition(", ")[2].capitalize()


def _lines(run: RobustnessScores, rule: str, condition: str) -> list[Line]:
    slots = arm_slots(run.arms)
    kept = {arm: run.kept(arm, rule, condition) for arm in run.arms}
    return [
        Line(arm, {count: run.quantity.shown(score) for count, score in rows.items()}, slots[arm])
        for arm, rows in kept.items()
        if rows
    ]


def _bounds(run: RobustnessScores, lines: dict[tuple[str, str], list[Line]]) -> Iterator[float | None]:
    yield run.reference
    for drawn in lines.values():
        for line in drawn:
            for score in line.rows.values():
                yield from (score.value, score.low, score.high)


def _variants(
    run: RobustnessScores,
    lines: dict[tuple[str, str], list[Line]],
    rules: tuple[str, ...],
    condition: str,
    span: tuple[float, float] | None,
) -> dict[tuple[int, ...], Figure]:
    """One figure for each rule that was run under the condition, all on one scale: all layers first, as one prunes."""
    axis = run.quantity.axis
    describe = hover_text("{} layers kept", axis, run.level)
    return {
        (at,): lined(
            lines[rule, condition],
            across="layers kept",
            upwards=axis,
            describe=describe,
            height=HEIGHT,
            span=span,
            reach=(run.depth + 0.3, 0.7),
            reference=run.reference,
        )
        for at, rule in enumerate(rules)
        if (rule, condition) in lines
    }
