"""Are the learned weights more than chance: across seeds, and across the groups of layers that were claimed?"""

from __future__ import annotations

from collections.abc import Mapping

from layerwise.report.arms import arm_slots
from layerwise.report.evidence import Evidence
from layerwise.report.figures.levels import Level, levels
from layerwise.report.page.answers import answers
from layerwise.report.page.chapter import Chapter, Heading, cards, lead, note
from layerwise.report.page.figure_slot import Picture
from layerwise.report.pretraining.findings import LIKE, seed_agreement_findings
from layerwise.report.pretraining.lookup import SEED_AGREEMENT, PretrainingScores
from layerwise.results.rows import Score

HEADING = Heading(SEED_AGREEMENT, "Do the weights mean anything", "Agreement of seeds")
ROWS = {
    "seeds": "as they are",
    "seeds beyond the start": "beyond the start",
    "grouping": "as they are",
    "grouping beyond distance": "beyond distance",
}
DRAWN = {
    "correlation": ("Agreement across seeds", "mean rank correlation of two seeds"),
    "contrast": ("Within groups of layers, minus across", "weight, in multiples of a uniform row's"),
}


def seed_agreement(evidence: Evidence) -> Chapter:
    """A verdict for each question, and a figure of each statistic over the band of its null."""
    run = evidence.pretraining
    pictures = tuple(picture for metric in DRAWN if (picture := _picture(run, metric)) is not None)
    if not pictures:
        return HEADING.missing(
            "The weights were not compared across seeds (seed_agreement): that needs layer weights of two"
            " seeds or more."
        )
    body = (
        lead("Every seed learns some pattern. It is a finding where seeds agree on it more than shuffled ones would."),
        answers(seed_agreement_findings(run)),
        cards(pictures, "grid pair"),
        note(
            "Grey is where 95 of 100 shuffles lie. Seeds that share their start are alike before they learn anything,"
            " so “beyond the start” compares how far each has moved from it. Surface layers are the first five of"
            " twelve and linguistic ones the next five, as the ELC-BERT paper posits, in proportion; neighbours weigh"
            " more whatever they mean, so “beyond distance” takes that off first."
        ),
    )
    return HEADING.chapter(body, pictures)


def _picture(run: PretrainingScores, metric: str) -> Picture | None:
    measured, shuffled = (_by_row(run, name) for name in (metric, f"{metric}@shuffled"))
    if not measured:
        return None
    title, axis = DRAWN[metric]
    slots = arm_slots(run.arms)
    arms = {name.partition(", ")[0] for name in measured}
    marks = [
        *(
            Level(arm, {name: score for name, score in measured.items() if name.startswith(f"{arm}, ")}, slot)
            for arm, slot in slots.items()
            if arm in arms
        ),
        Level("shuffled", shuffled, null=True),
    ]
    return Picture(f"seed-agreement-{metric}", title, {(): levels([mark for mark in marks if mark.rows], across=axis)})


def _by_row(run: PretrainingScores, metric: str) -> Mapping[str, Score]:
    return {
        f"{arm}, {ROWS[task]}": score
        for task in LIKE
        for arm, score in run.subjects(SEED_AGREEMENT, metric, task).items()
    }
