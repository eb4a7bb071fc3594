"""Do great weights have great effects, and what is left when most edges are cut?"""

from __future__ import annotations

from layerwise.report.evidence import Evidence
from layerwise.report.figures.dot_plot import DotArm, dots
from layerwise.report.figures.scatter import EDGE, edge_scatter
from layerwise.report.page.answers import answers
from layerwise.report.page.chapter import Chapter, Heading, cards, depth_key, lead, note, spaced
from layerwise.report.page.figure_slot import Picture
from layerwise.report.page.markup import element, join
from layerwise.report.pretraining.findings import edge_findings
from layerwise.report.pretraining.lookup import ALL, EDGES, PretrainingScores

HEADING = Heading(EDGES, "What each edge is worth", "Edges")
CUT = "pruned"
WAYS = {"difference": "cut by measured effect", "difference@size": "cut by size", "difference@random": "cut at random"}


def edges(evidence: Evidence) -> Chapter:
    """Weight against effect, the loss of the sparse wiring beside its nulls, and both in sentences."""
    run = evidence.pretraining
    pictures = tuple(picture for picture in (_scatter(run, evidence.depth), _left(run)) if picture is not None)
    if not pictures:
        return HEADING.missing("No edge was cut in this run (edges): layerwise layer-weights does.")
    grey = join([element("i", class_="embedding"), " the embedding"])
    body = (
        lead("A great weight is no proof of an effect: each edge is cut alone, and the loss is measured again."),
        answers(edge_findings(run)),
        pictures[0].controls(),
        cards(pictures, "grid pair"),
        spaced(depth_key(max(evidence.depth, 1), element("span", grey))),
        note(
            "Dots have the colour of the state that is read. The sparse wiring is measured on examples that did not"
            " choose its edges; the random cuts are as many edges, drawn again and again, and their bar is from the"
            " least to the most of them: of 20 draws, where another falls in 90 of 100 cases."
        ),
    )
    return HEADING.chapter(body, pictures)


def _scatter(run: PretrainingScores, depth: int) -> Picture | None:
    effects = {name: of for name, of in run.subjects(EDGES, "effect").items() if EDGE.fullmatch(name)}
    if not effects:
        return None
    figure = edge_scatter(run.subjects(EDGES, "weight"), effects, depth=depth)
    return Picture("edges", "Weight against effect, a dot an edge", {(): figure}, rooted=True)


def _left(run: PretrainingScores) -> Picture | None:
    marks = [
        DotArm(words, slot, {words: score})
        for slot, (metric, words) in enumerate(WAYS.items())
        if (score := run.score(EDGES, metric, CUT, ALL)) is not None
    ]
    if not marks:
        return None
    figure = dots(marks, across="nats lost", reference=0.0, signed=True)
    return Picture("edges-cut", "What the sparse wiring loses", {(): figure})
