"""Do great weights have great effects, and what is left when most edges are cut?"""

from __future__ import annotations

from layerwise.report.chapters.chapter import Chapter, card, depth_key, lead, missing, note
from layerwise.report.chapters.pretraining.answers import answers
from layerwise.report.data import Evidence
from layerwise.report.figures.dots import Dots, dots
from layerwise.report.figures.edges import EDGE, edge_scatter
from layerwise.report.markup import element, join
from layerwise.report.picture import Picture
from layerwise.report.pretraining import ALL, EDGES, Pretraining
from layerwise.report.worth import edge_findings

TITLE, SHORT = "What each edge is worth", "Edges"
CUT = "pruned"
WAYS = {"difference": "cut by measured effect", "difference@size": "cut by size", "difference@random": "cut at random"}


def edges(evidence: Evidence) -> Chapter:
    """Weight against effect, the loss of the sparse wiring beside its nulls, and both in sentences."""
    found = evidence.pretraining
    pictures = tuple(picture for picture in (_scatter(found, evidence.depth), _left(found)) if picture is not None)
    if not pictures:
        return Chapter(EDGES, TITLE, SHORT, (missing("No edge was cut in this run (edges): layerwise wiring does."),))
    grey = join([element("i", class_="embedding"), " the embedding"])
    body = (
        lead("A great weight is no proof of an effect: each edge is cut alone, and the loss is measured again."),
        answers(edge_findings(found)),
        pictures[0].controls(),
        element("div", *(card(picture.alternative, picture.html()) for picture in pictures), class_="grid pair"),
        element("div", depth_key(max(evidence.depth, 1), element("span", grey)), class_="spaced"),
        note(
            "Dots have the colour of the state that is read. The sparse wiring is measured on examples that did not"
            " choose its edges; the random cuts are as many edges, drawn again and again, and their bar is the range of"
            " 95 of 100 draws."
        ),
    )
    return Chapter(EDGES, TITLE, SHORT, body, pictures)


def _scatter(found: Pretraining, depth: int) -> Picture | None:
    effects = {name: of for name, of in found.subjects(EDGES, "effect").items() if EDGE.fullmatch(name)}
    if not effects:
        return None
    figure = edge_scatter(found.subjects(EDGES, "weight"), effects, depth=depth)
    return Picture("edges", "Weight against effect, a dot an edge", {(): figure}, rooted=True)


def _left(found: Pretraining) -> Picture | None:
    marks = [
        Dots(words, slot, {words: score})
        for slot, (metric, words) in enumerate(WAYS.items())
        if (score := found.score(EDGES, metric, CUT, ALL)) is not None
    ]
    if not marks:
        return None
    figure = dots(marks, across="nats lost", reference=0.0, signed=True)
    return Picture("edges-cut", "What the sparse wiring loses", {(): figure})
