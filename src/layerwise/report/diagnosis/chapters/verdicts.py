"""What each layer is: a cell for every layer, coloured by its verdict, and the verdicts in full."""

from __future__ import annotations

from layerwise.report.diagnosis.lookup import DiagnosisScores
from layerwise.report.diagnosis.tables import WORDS, in_words, margin_of, verdict_rows
from layerwise.report.evidence import Evidence
from layerwise.report.page.chapter import Chapter, Heading, Missing, folded, note
from layerwise.report.page.markup import Safe, element
from layerwise.report.page.wording import counted
from layerwise.results.rows import Score

HEADING = Heading("verdicts", "What each layer is", "Verdicts")


def verdicts(evidence: Evidence) -> Chapter:
    """The verdict of every layer, as one row of cells and as a table."""
    return HEADING.chapter(_layers(evidence.diagnosis))


def _layers(run: DiagnosisScores) -> tuple[Safe, ...]:
    verdicts = run.verdicts()
    if not verdicts:
        return (Missing("No layer has a verdict: ablation was not confirmed on a second part of the text."),)
    counts = {name: sum(score.metric == name for score in verdicts.values()) for name in WORDS}
    summary = ", ".join(f"{counted(count, 'layer')} {_are(name, count)}" for name, count in counts.items() if count)
    rows = verdict_rows(run)
    return (
        element("ol", *(_cell(layer, score) for layer, score in verdicts.items()), class_="layers"),
        note(
            f"{summary}. The effect of skipping is under each layer, in nats per token, over all of the text. “Without"
            f" effect” is shown: the interval lies inside {_counts(run)}. “Not resolvable” is no verdict of none: the"
            " interval holds both zero and an effect that counts. A layer is harmful only if a fresh part of the text"
            " says so again."
        ),
        folded("The verdicts in full", rows.html()),
    )


def _counts(run: DiagnosisScores) -> str:
    margin = margin_of(run)
    return "the margin" if margin is None else f"±{margin:g} nats per token, the margin that was stated beforehand"


def _are(name: str, count: int) -> str:
    """The end of a sentence about so many layers.

    >>> _are("matters", 1), _are("matters", 9), _are("harmful", 2)
    ('matters', 'matter', 'are harmful')
    """
    if name == "matters":
        return "matters" if count == 1 else "matter"
    return f"{'is' if count == 1 else 'are'} {WORDS[name]}"


def _cell(layer: int, score: Score) -> Safe:
    return element(
        "li",
        element("b", str(layer)),
        element("small", f"{score.value:+.2g}".replace("-", "−") if score.value else "0"),
        class_=score.metric,
        title=f"layer {layer}: {in_words(score)}",
    )
