"""Whether the scores agree on the layers: every ranking against every other, and against a random one."""

from __future__ import annotations

from layerwise.report.diagnosis.lookup import DiagnosisScores
from layerwise.report.evidence import Evidence
from layerwise.report.figures.figure import Figure
from layerwise.report.figures.heatmaps import agreement_grid
from layerwise.report.page.chapter import Chapter, Heading, card, lead, note
from layerwise.report.page.figure_slot import Choice, Picture
from layerwise.report.page.wording import label
from layerwise.results.rows import Score

MEASURE = "agreement"
RANDOM = "random_score"
STATISTICS = {"spearman": "Spearman", "kendall": "Kendall"}
HEADING = Heading(MEASURE, "Do the scores agree?", "Agreement")


def agreement(evidence: Evidence) -> Chapter:
    """One square of correlations, the random score last."""
    run = evidence.diagnosis
    statistics = [name for name in STATISTICS if run.subjects(MEASURE, name)]
    if not statistics:
        return HEADING.missing("No two scores were compared in this run (agreement).")
    variants: dict[tuple[int, ...], Figure] = {(at,): _grid(run, name) for at, name in enumerate(statistics)}
    choice = (Choice("Correlation", tuple(STATISTICS[name] for name in statistics)),)
    picture = Picture("agreement", "Rank correlation between all scores", variants, choice)
    body = (
        lead("Rank correlation over layers between every two scores, each turned so that more means matters more."),
        picture.controls(),
        card(None, picture.html()),
        note(
            "On the diagonal, where it was measured: one half of the documents against the other, the most that any"
            " score can agree. In brackets: the interval holds zero. The row of the random score is the null: how far"
            " from zero rankings of so many layers fall by chance."
        ),
    )
    return HEADING.chapter(body, (picture,))


def _grid(run: DiagnosisScores, statistic: str) -> Figure:
    scores: dict[tuple[str, str], Score] = {}
    for subject, score in run.subjects(MEASURE, statistic).items():
        left, comma, right = subject.partition(",")
        if comma:
            scores[left, right] = score
            scores.setdefault((right, left), score)
    for subject, score in run.subjects(MEASURE, f"{statistic}_halves").items():
        name = subject.partition(",")[0]
        if any(name in pair for pair in scores):
            scores[name, name] = score
    names = [name for name in dict.fromkeys(name for pair in scores for name in pair) if name != RANDOM]
    last = [RANDOM] if any(RANDOM in pair for pair in scores) else []
    return agreement_grid([(name, label(name)) for name in (*names, *last)], scores, RANDOM)
