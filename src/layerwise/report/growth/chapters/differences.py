"""The losses on held-out text and their differences, seed for seed, with intervals: what the verdict is made from."""

from __future__ import annotations

from layerwise.report.arms import arm_slots
from layerwise.report.evidence import Evidence
from layerwise.report.figures.dot_plot import DotArm, dots
from layerwise.report.figures.figure import Figure
from layerwise.report.figures.frame import limits
from layerwise.report.growth.lookup import DIFFERENCE, GROWTH, HELD_OUT, TERMS, TEST, UNIFORM, GrowthScores
from layerwise.report.growth.tables import difference_rows
from layerwise.report.page.chapter import Chapter, Heading, card, folded, lead, note
from layerwise.report.page.figure_slot import Picture
from layerwise.report.page.markup import element
from layerwise.results.rows import Score

HEADING = Heading(HELD_OUT, "Differences, seed for seed", "Differences")
ACROSS = "nats per token; left is better"


def differences(evidence: Evidence) -> Chapter:
    """A figure for each term, the losses themselves, a figure for the controls, and every number in a table."""
    run = evidence.growth
    terms = _by_terms(run)
    pictures = (*terms, *_losses(run), *_controls(run))
    if not pictures:
        return HEADING.missing("Nothing was measured on held-out text (held_out), and no arms were compared (growth).")
    rows = difference_rows(run)
    table = rows.html()
    body = (
        lead("An arm's loss minus uniform's. Where the interval holds zero, these seeds cannot distinguish the two."),
        *(
            element("div", *(card(picture.alternative, picture.html()) for picture in of), class_=f"{kind} spaced")
            for of, kind in ((terms, "grid"), (pictures[len(terms) :], "grid pair"))
            if of
        ),
        note(
            "The dotted line is no difference: the null. Differences are paired by seed and their intervals are over"
            " seeds, each its arm's own; verdicts go by p corrected over the arms that have the same metric. Small dots"
            " are seeds; an arm's own loss has an interval over documents, and over seeds where there are several. The"
            " dotted line beside the losses is a table of token pairs, counted on the same text: what needs no layers."
        ),
        *((folded("Every difference", table),) if rows.body else ()),
    )
    return HEADING.chapter(body, pictures)


def _by_terms(run: GrowthScores) -> list[Picture]:
    """The differences from uniform, one figure a term, with the same rows and on the same scale."""
    compared = {words: _compared(run, terms, with_uniform=True) for terms, words in TERMS.items()}
    rows = [arm for arm in (*run.arms, *run.lengths) if any(arm in scores for scores in compared.values())]
    span = _span(run)
    return [
        Picture(f"differences-{at}", words[0].upper() + words[1:], {(): _figure(run, scores, span, rows)})
        for at, (words, scores) in enumerate(compared.items())
        if scores
    ]


def _controls(run: GrowthScores) -> list[Picture]:
    """The differences from other arms than uniform: of a schedule from its controls."""
    compared = {words: _compared(run, terms, with_uniform=False) for terms, words in TERMS.items()}
    shown = {words: scores for words, scores in compared.items() if scores}
    return [
        Picture(f"controls-{at}", f"Against its controls, {words}", {(): _figure(run, scores, _span(run))})
        for at, (words, scores) in enumerate(shown.items())
    ]


def _compared(run: GrowthScores, terms: str, *, with_uniform: bool) -> dict[str, Score]:
    """Arm to its difference from uniform, or else pair of arms to theirs."""
    pairs = {
        tuple(subject.split(" - ", 1)): score
        for subject, score in run.subjects(GROWTH, DIFFERENCE, terms).items()
        if subject.endswith(f" - {UNIFORM}") == with_uniform
    }
    return {pair[0] if with_uniform else " - ".join(pair): score for pair, score in pairs.items()}


def _span(run: GrowthScores) -> tuple[float, float] | None:
    """One scale for all differences."""
    scores = (score for terms in TERMS for score in run.subjects(GROWTH, DIFFERENCE, terms).values())
    return limits(bound for score in scores for bound in (score.value, score.low, score.high))


def _figure(
    run: GrowthScores, scores: dict[str, Score], span: tuple[float, float] | None, rows: list[str] | None = None
) -> Figure:
    """A row an arm in its colour; a pair has that of the arm it is compared with."""
    slots = arm_slots([*run.arms, *(_coloured_as(name) for name in scores)])
    shown = [DotArm(name, slots[_coloured_as(name)], {name: score}) for name, score in scores.items()]
    return dots(shown, across=ACROSS, reference=0.0, signed=True, span=span, rows=rows)


def _coloured_as(name: str) -> str:
    """The arm that gives a row its colour.

    >>> _coloured_as("stacking"), _coloured_as("importance - permuted"), _coloured_as("published@0.634")
    ('stacking', 'permuted', 'published')
    """
    return (name.partition(" - ")[2] or name).partition("@")[0]


def _losses(run: GrowthScores) -> list[Picture]:
    """Every arm's loss on held-out text, uniform's other lengths left to the table of the costs."""
    slots = arm_slots(run.arms)
    shown = []
    for arm in run.arms:
        score = run.of_arm(HELD_OUT, "nll", arm, TEST)
        seeds = list(run.by_seed(HELD_OUT, "nll", arm, TEST).values())
        if score is not None:
            shown.append(DotArm(arm, slots[arm], {arm: score}, {arm: seeds} if len(seeds) > 1 else {}))
    if not shown:
        return []
    null = None if run.null is None else run.null.value
    figure = dots(shown, across="nats per token", reference=null)
    return [Picture("held-out", "Loss on held-out text, all arms", {(): figure})]
