"""Are the learned weights more than chance: across seeds, and across the groups of layers that were claimed?"""

from __future__ import annotations

from collections.abc import Mapping

from layerwise.report.arms import arm_slots
from layerwise.report.chapters.chapter import Chapter, card, lead, missing, note
from layerwise.report.chapters.pretraining.answers import answers
from layerwise.report.data import Evidence
from layerwise.report.figures.levels import Level, levels
from layerwise.report.markup import element
from layerwise.report.picture import Picture
from layerwise.report.pretraining import LIKENESS, Pretraining
from layerwise.report.worth import LIKE, likeness_findings
from layerwise.results.rows import Score

TITLE, SHORT = "Do the weights mean anything", "Likeness"
ROWS = {
    "seeds": "as they are",
    "seeds beyond the start": "beyond the start",
    "grouping": "as they are",
    "grouping beyond distance": "beyond distance",
}
DRAWN = {
    "correlation": ("Likeness across seeds", "mean rank correlation of two seeds"),
    "contrast": ("Within groups of layers, minus across", "weight, in multiples of a uniform row's"),
}


def likeness(evidence: Evidence) -> Chapter:
    """A verdict for each question, and a figure of each statistic over the band of its null."""
    found = evidence.pretraining
    pictures = tuple(picture for metric in DRAWN if (picture := _picture(found, metric)) is not None)
    if not pictures:
        text = "The weights were not compared across seeds (likeness): that needs layer weights of two seeds or more."
        return Chapter(LIKENESS, TITLE, SHORT, (missing(text),))
    body = (
        lead("Every seed learns some pattern. It is a finding where seeds agree on it more than shuffled ones would."),
        answers(likeness_findings(found)),
        element("div", *(card(picture.alternative, picture.html()) for picture in pictures), class_="grid pair"),
        note(
            "Grey is where 95 of 100 shuffles lie. Seeds that share their start are alike before they learn anything,"
            " so “beyond the start” compares how far each has moved from it. Surface layers are the first five of"
            " twelve and linguistic ones the next five, as the ELC-BERT paper posits, in proportion; neighbours weigh"
            " more whatever they mean, so “beyond distance” takes that off first."
        ),
    )
    return Chapter(LIKENESS, TITLE, SHORT, body, pictures)


def _picture(found: Pretraining, metric: str) -> Picture | None:
    measured, shuffled = (_by_row(found, name) for name in (metric, f"{metric}@shuffled"))
    if not measured:
        return None
    title, axis = DRAWN[metric]
    slots = arm_slots(found.arms)
    arms = {name.partition(", ")[0] for name in measured}
    marks = [
        *(
            Level(arm, {name: score for name, score in measured.items() if name.startswith(f"{arm}, ")}, slot)
            for arm, slot in slots.items()
            if arm in arms
        ),
        Level("shuffled", shuffled, null=True),
    ]
    return Picture(f"likeness-{metric}", title, {(): levels([mark for mark in marks if mark.rows], across=axis)})


def _by_row(found: Pretraining, metric: str) -> Mapping[str, Score]:
    return {
        f"{arm}, {ROWS[task]}": score for task in LIKE for arm, score in found.subjects(LIKENESS, metric, task).items()
    }
