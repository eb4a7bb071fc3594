"""What became of the published claims, and what each layer is: the page to read when only one page is read."""

from __future__ import annotations

from collections.abc import Sequence

from layerwise.report.chapters.chapter import Chapter, lead, missing, note
from layerwise.report.claims import Claim, Verdict
from layerwise.report.claims import claims as decided
from layerwise.report.data import Evidence
from layerwise.report.diagnosis import Diagnosis
from layerwise.report.markup import Safe, element
from layerwise.report.table import simple_table
from layerwise.report.verdicts import WORDS, in_words, verdict_rows
from layerwise.report.wording import counted, listed
from layerwise.results.rows import Score

BADGES: dict[Verdict, str] = {
    "supported": "resolved",
    "explained by the null": "null",
    "contradicted": "contradicted",
    "not resolvable": "unresolved",
    "not measured": "described",
}


def claims(evidence: Evidence) -> Chapter:
    """The claims as a list of answers, the layers as one row of cells, and the verdicts in full as a table."""
    found = evidence.diagnosis
    told = decided(evidence.data.scores, evidence.depth, found.level)
    body = (
        lead(f"{_summary(told)} Each is decided by a rule from rows, nulls and intervals."),
        element("ol", *(_claim(claim) for claim in told), class_="claims"),
        element("h3", "What each layer is"),
        *_layers(found),
    )
    return Chapter("claims", "What became of the claims", "Claims", body)


def _summary(told: Sequence[Claim]) -> str:
    """How many claims got which verdict, in words."""
    counts = {verdict: sum(claim.verdict == verdict for claim in told) for verdict in BADGES}
    shares = listed([f"{count} {verdict}" for verdict, count in counts.items() if count])
    return f"{counted(len(told), 'claim')} of the literature, put to this model: {shares}."


def _claim(claim: Claim) -> Safe:
    badge = element("span", claim.verdict, class_=f"badge {BADGES[claim.verdict]}")
    figures = (element("p", claim.figures, class_="measured"),) if claim.figures else ()
    return element(
        "li",
        element("div", element("h3", claim.name), element("p", claim.published, class_="published")),
        element("div", badge, *figures, element("p", claim.why, class_="why")),
    )


def _layers(found: Diagnosis) -> tuple[Safe, ...]:
    verdicts = found.verdicts()
    if not verdicts:
        return (missing("No layer has a verdict: ablation was not confirmed on a second part of the text."),)
    counts = {name: sum(score.metric == name for score in verdicts.values()) for name in WORDS}
    summary = ", ".join(f"{counted(count, 'layer')} {_are(name, count)}" for name, count in counts.items() if count)
    rows = verdict_rows(found)
    return (
        element("ol", *(_cell(layer, score) for layer, score in verdicts.items()), class_="layers"),
        note(
            f"{summary}. The effect of skipping is under each layer, in nats per token, over all of the text. “No"
            " effect” means none above the size that the table names; a layer is harmful only if a fresh part of the"
            " text says so again."
        ),
        element("details", element("summary", "The verdicts in full"), simple_table(rows.head, rows.body)),
    )


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
