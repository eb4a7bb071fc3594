"""Where a race spent its tokens, and what it saved against measuring every layer in full."""

from __future__ import annotations

from layerwise.report.diagnosis.lookup import VERDICTS, DiagnosisScores
from layerwise.report.evidence import Evidence
from layerwise.report.figures.bars import spending
from layerwise.report.page.chapter import Chapter, Heading, card, lead, note
from layerwise.report.page.figure_slot import Picture
from layerwise.report.page.markup import Safe, element
from layerwise.report.page.number_format import percent, tidy

FACTS = {
    "evaluations": "layer evaluations spent",
    "evaluations_full": "of a full sweep",
    "share": "share of the full sweep",
    "looks": "looks at the rows",
}
HEADING = Heading("racing", "What the verdicts cost", "Race")


def racing(evidence: Evidence) -> Chapter:
    """The bill of the race, and a bar a layer."""
    run = evidence.diagnosis
    verdicts = {layer: score for name in VERDICTS for layer, score in run.layers("racing", name).items()}
    if not verdicts:
        return HEADING.missing(
            "No race was run: every layer was measured on all tokens, or not at all (--budget starts a race)."
        )
    picture = Picture("racing", "Tokens spent on each layer until its verdict was settled", {(): spending(verdicts)})
    body = (
        lead(
            "A race stops reading for a layer once its verdict is settled, and keeps the error rate of the full sweep."
        ),
        _facts(run),
        card("Tokens spent, layer by layer", picture.html()),
        note("Short bars are easy verdicts. The looks at the rows are counted in the error rate (sequential test)."),
    )
    return HEADING.chapter(body, (picture,))


def _facts(run: DiagnosisScores) -> Safe:
    scores = {metric: run.score("racing", "race", metric) for metric in FACTS}
    shown = {
        name: percent(score.value) if metric == "share" else tidy(score.value)
        for metric, name in FACTS.items()
        if (score := scores[metric]) is not None
    }
    facts = (element("div", element("dd", value), element("dt", name)) for name, value in shown.items())
    return element("dl", *facts, class_="facts")
