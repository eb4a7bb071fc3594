"""Where a race spent its tokens, and what it saved against measuring every layer in full."""

from __future__ import annotations

from layerwise.report.chapters.chapter import Chapter, card, lead, missing, note
from layerwise.report.data import Evidence
from layerwise.report.diagnosis import VERDICTS, Diagnosis
from layerwise.report.figures.budget import spending
from layerwise.report.markup import Safe, element
from layerwise.report.notation import percent, tidy
from layerwise.report.picture import Picture

FACTS = {
    "evaluations": "layer evaluations spent",
    "evaluations_full": "of a full sweep",
    "share": "share of the full sweep",
    "looks": "looks at the rows",
}


def racing(evidence: Evidence) -> Chapter:
    """The bill of the race, and a bar a layer."""
    title, short = "What the verdicts cost", "Race"
    found = evidence.diagnosis
    verdicts = {layer: score for name in VERDICTS for layer, score in found.layers("racing", name).items()}
    if not verdicts:
        text = "No race was run: every layer was measured on all tokens, or not at all (--budget starts a race)."
        return Chapter("racing", title, short, (missing(text),))
    picture = Picture("racing", "Tokens spent on each layer until its verdict was settled", {(): spending(verdicts)})
    body = (
        lead(
            "A race stops reading for a layer once its verdict is settled, and keeps the error rate of the full sweep."
        ),
        _facts(found),
        card("Tokens spent, layer by layer", picture.html()),
        note("Short bars are easy verdicts. The looks at the rows are counted in the error rate (sequential test)."),
    )
    return Chapter("racing", title, short, body, (picture,))


def _facts(found: Diagnosis) -> Safe:
    scores = {metric: found.score("racing", "race", metric) for metric in FACTS}
    shown = {
        name: percent(score.value) if metric == "share" else tidy(score.value)
        for metric, name in FACTS.items()
        if (score := scores[metric]) is not None
    }
    facts = (element("div", element("dd", value), element("dt", name)) for name, value in shown.items())
    return element("dl", *facts, class_="facts")
