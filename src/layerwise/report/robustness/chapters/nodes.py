"""What the loss of whole nodes costs: in blocks and round robin, beside as many layers anywhere, and one by one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from layerwise.report.arms import arm_slots
from layerwise.report.evidence import Evidence
from layerwise.report.figures.axis import Line
from layerwise.report.figures.figure import Figure
from layerwise.report.figures.lines import common_span, hover_text, lined
from layerwise.report.page.answers import pieces
from layerwise.report.page.chapter import Chapter, Heading, card, folded, lead, legend, note
from layerwise.report.page.figure_slot import Choice, Picture
from layerwise.report.page.markup import element
from layerwise.report.robustness.chapters.absence import absent
from layerwise.report.robustness.lookup import CONDITIONS, RobustnessScores
from layerwise.report.robustness.node_loss import (
    BLOCKS,
    ROUND_ROBIN,
    SCATTERED,
    SINGLE,
    axis_of,
    cost_of,
    node_counts,
    node_rows,
    node_sentences,
)
from layerwise.results.rows import Score

HEADING = Heading("nodes", "What the loss of a node costs", "Nodes")
HEIGHT = 380
SLOTS = {BLOCKS: 0, ROUND_ROBIN: 1, SCATTERED: 2, SINGLE: 3}
KINDS = tuple(SLOTS)

Drawn = Mapping[tuple[str, int, int], list[Line]]
"""The lines of a figure, by the order, the number of the arm and that of the count of nodes."""


def nodes(evidence: Evidence) -> Chapter:
    """Two figures, the orders; choices, the arm and the number of nodes; a sentence for each arm."""
    run = evidence.robustness
    counts = node_counts(run)
    arms = run.arms_with("nodes")
    drawn = {
        (order, at, by): _lines(run, arm, count, order)
        for order in CONDITIONS
        for at, arm in enumerate(arms)
        for by, count in enumerate(counts)
    }
    pictures = _pictures(run, drawn, (Choice("Arm", arms), Choice("Nodes", tuple(map(str, counts)))))
    if not pictures:
        return absent(evidence, HEADING, "No node was lost in this run (nodes).")
    present = {line.name for lines in drawn.values() for line in lines}
    chips = legend(
        {kind: slot for kind, slot in SLOTS.items() if kind in present},
        tuple(picture.name for picture in pictures),
        noun="What is lost",
    )
    sentences = (
        element("li", element("b", element("i", style=f"--swatch:var(--series-{arm_slots(run.arms)[arm]})"), arm),
                element("p", *pieces(answer)))
        for arm, answer in node_sentences(run)
    )  # fmt: skip
    body = (
        lead("The layers lie on several nodes, and a node that is lost takes all of its layers with it."),
        pictures[0].controls(),
        chips,
        element("div", *(card(picture.alternative, picture.html()) for picture in pictures), class_="grid pair"),
        note(
            "Blocks are contiguous; round robin spreads the layers of a node over the depth. Each node is lost in turn;"
            " of several lost together, others in every batch. Beside them as many layers left out anywhere, and the"
            " sum of what the same layers cost one by one. Intervals are over seeds and batches."
        ),
        element("ul", *sentences, class_="fates"),
        folded("Every number", node_rows(run).html()),
    )
    return HEADING.chapter(body, pictures)


def _pictures(run: RobustnessScores, drawn: Drawn, choices: tuple[Choice, ...]) -> list[Picture]:
    """A figure for each order that was measured, all with one vertical axis."""
    _, axis = axis_of(run)
    span = common_span([line.rows for lines in drawn.values() for line in lines])
    describe = hover_text("{} of the nodes lost", axis, run.level)
    pictures: list[Picture] = []
    for order, words in CONDITIONS.items():
        variants: dict[tuple[int, ...], Figure] = {
            (at, by): lined(
                lines, across="nodes lost", upwards=axis, describe=describe, height=HEIGHT, span=span, reference=0.0
            )
            for (where, at, by), lines in drawn.items()
            if where == order and lines
        }
        if variants:
            leader = pictures[0].name if pictures else None
            pictures.append(Picture(f"nodes-{order}", f"What is left runs {words}", variants, choices, leader=leader))
    return pictures


def _lines(run: RobustnessScores, arm: str, count: int, order: str) -> list[Line]:
    scale, _ = axis_of(run)
    lines = []
    for kind in KINDS:
        rows: dict[int, Score] = {}
        for lost in range(1, count):
            score = cost_of(run, arm, count, lost, order, kind)
            if score is not None:
                low, high = (None if bound is None else scale * bound for bound in (score.low, score.high))
                rows[lost] = replace(score, value=scale * score.value, low=low, high=high)
        if rows:
            lines.append(Line(kind, rows, SLOTS[kind]))
    return lines
