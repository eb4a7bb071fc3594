"""How alike the hidden states of different layers are, with and without the attention sink."""

from __future__ import annotations

from layerwise.report.evidence import Evidence
from layerwise.report.figures import adjacent, similarity_map
from layerwise.report.page.chapter import Chapter, Heading, card, lead, note
from layerwise.report.page.figure_slot import Picture
from layerwise.report.page.markup import element
from layerwise.report.page.number_format import tidy
from layerwise.report.sweep.similarity import Matrix, difference, matrix

MAPS = {
    "cosine": "Cosine, all tokens",
    "cosine_no_sink": "Cosine, without the sink token",
    "cka": "CKA, unbiased",
    "cosine_flattened": "Cosine of flattened states, as published",
}
FLATTENED = (
    " The published cosine takes all states of a window as one vector, sinks included, and the mean is over windows:"
    " tokens count by their norms there, and alike in the others."
)
HEADING = Heading("similarity", "How alike hidden states are", "Similarity")


def similarity(evidence: Evidence) -> Chapter:
    """The maps on one scale, the difference on its own, and the profile of neighbours."""
    matrices = {name: values for name in MAPS if (values := matrix(evidence, name)) is not None}
    if not matrices:
        return HEADING.missing("Similarity was not measured in this run.")
    low, high = _scale(matrices)
    cards = {name: (MAPS[name], _map(name, values, low, high)) for name, values in matrices.items()}
    if "cosine" in matrices and "cosine_no_sink" in matrices:
        gap = difference(matrices["cosine"], matrices["cosine_no_sink"])
        edge = _largest(gap)
        picture = Picture("map-difference", "Cosine difference", {(): similarity_map(gap, -edge, edge, diverging=True)})
        cards["difference"] = ("Difference: what the sink adds", picture)
    order = [name for name in ("cosine", "cosine_no_sink", "difference", "cka", "cosine_flattened") if name in cards]
    profile = Picture(
        "profile", "Similarity of neighbouring hidden states", {(): adjacent({MAPS[n]: v for n, v in matrices.items()})}
    )
    shown = [card(title, picture.html()) for title, picture in (cards[name] for name in order)]
    shown.append(card("Each state against the next", profile.html(), wide=True))
    body = (
        lead("Blocks of one colour are zones: layers that pass on states of the same kind. State 0 is the embedding."),
        element("div", *shown, class_="grid"),
        note(
            f"Cosine and CKA share one scale, {low:.2g} to {high:.2g}; the difference has its own, symmetric"
            " about zero."
            f" Values are means over tokens (CKA: over minibatches).{FLATTENED if 'cosine_flattened' in cards else ''}"
            f"{_widest(evidence)}"
        ),
    )
    return HEADING.chapter(body, (*(cards[name][1] for name in order), profile))


def _widest(evidence: Evidence) -> str:
    """How well the cosines are known, as a sentence; nothing where no row has an interval."""
    widths = [
        (score.high - score.low) / 2
        for score in evidence.scores("similarity")
        if score.metric in MAPS and score.low is not None and score.high is not None
    ]
    return f" Intervals over {evidence.units} reach at most ±{tidy(max(widths))}." if widths else ""


def _scale(matrices: dict[str, Matrix]) -> tuple[float, float]:
    """One scale for all maps: from zero, or the least value where it is negative, to one."""
    least = min(
        (value for values in matrices.values() for row in values for value in row if value is not None), default=0.0
    )
    return min(0.0, least), 1.0


def _largest(values: Matrix) -> float:
    return max((abs(value) for row in values for value in row if value is not None), default=0.0) or 1.0


def _map(name: str, values: Matrix, low: float, high: float) -> Picture:
    return Picture(f"map-{name}", MAPS[name], {(): similarity_map(values, low, high)})
