"""What each layer is, in words and as a table, shared by the page and the Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from layerwise.plan import SUBLAYERS
from layerwise.report.claims.contrasts import CONTRAST
from layerwise.report.claims.power import needed
from layerwise.report.diagnosis.lookup import DiagnosisScores
from layerwise.report.evidence import Evidence
from layerwise.report.figures.lines import in_perplexity
from layerwise.report.page.number_format import between, probability, tidy
from layerwise.report.page.table import Table
from layerwise.report.page.wording import label
from layerwise.results.rows import Score

LEAST_DAMAGE = 0.05
"""Nats per token: of less damage a share says nothing."""

WORDS = {"matters": "matters", "no_effect": "without effect", "harmful": "harmful", "unresolved": "not resolvable"}


def in_words(score: Score, margin: float | None = None) -> str:
    """A verdict as it is read, with what stands behind it: what was excluded, or what could have been seen.

    >>> in_words(Score("verdict", "3", "all", "no_effect", 0.001, mde=0.008))
    'no effect above 0.00800 nats'
    >>> in_words(Score("verdict", "3", "all", "unresolved", 0.01, mde=0.05, tokens=1000), margin=0.01)
    'not resolvable below 0.0500 nats; about 34,000 tokens would decide'
    """
    if score.mde is None or score.metric not in ("no_effect", "unresolved"):
        return WORDS.get(score.metric, score.metric)
    limit = tidy(score.mde)
    if score.metric == "no_effect":
        return f"no effect above {limit} nats"
    return f"not resolvable below {limit} nats{needed(score, margin) if margin is not None else ''}"


def margin_of(run: DiagnosisScores) -> float | None:
    """The smallest effect that counts in this run, in nats per token; `None` for runs that did not keep it."""
    score = run.score("verdict", "all", "margin")
    return score.value if score is not None else None


def verdict_rows(run: DiagnosisScores) -> Table:
    """A row a layer: the verdict, the effect of skipping it with its interval and as a change of perplexity, the
    p-value and the tokens read."""
    margin = margin_of(run)
    body = [
        (
            str(layer),
            in_words(score, margin),
            between(score.value, score.low, score.high, signed=True),
            in_perplexity(score.value),
            probability(score.p_adjusted),
            "–" if score.tokens is None else f"{score.tokens:,}",
        )
        for layer, score in run.verdicts().items()
    ]
    return Table(("layer", "verdict", "Δ NLL of skipping", "perplexity", "adjusted p", "tokens"), tuple(body))


def joint_rows(run: DiagnosisScores, claim: str, tasks: Iterable[str], what: str) -> Table:
    """A row for each set of layers that was changed together (`what` heads the column): what that costs, the costs of
    its layers one by one, and the share of the first that the second leave."""
    body = []
    for task in tasks:
        scores = [run.score(CONTRAST, claim, metric, task) for metric in ("joint", "singles", "excess", "share")]
        shown = ["–" if s is None else between(s.value, s.low, s.high, signed=True) for s in scores]
        if scores[0] is None or scores[0].value < LEAST_DAMAGE:
            shown[-1] = "–"
        body.append((task, *shown))
    head = (what, "together (nats)", "one by one, added up", "more together", "share that single costs leave")
    return Table(head, tuple(body))


def diagnosis_markdown(evidence: Evidence) -> Iterator[str]:
    """The verdicts, and what each intervention costs."""
    yield verdict_rows(evidence.diagnosis).section("Verdicts")
    yield ablation_rows(evidence.diagnosis).section("Ablation")


def ablation_rows(run: DiagnosisScores) -> Table:
    """A row a layer: what each intervention costs, the halves of the layer last."""
    columns: dict[str, dict[int, Score]] = {
        label(metric) if part is None else f"{label(metric)}, {part}": run.layers("ablation", metric, part=part)
        for part in (None, *SUBLAYERS)
        for metric in run.metrics("ablation")
    }
    shown = {name: rows for name, rows in columns.items() if rows}
    layers = sorted({layer for rows in shown.values() for layer in rows})
    body = tuple((str(layer), *(_effect(rows.get(layer)) for rows in shown.values())) for layer in layers)
    return Table(("layer", *shown), body)


def _effect(score: Score | None) -> str:
    return "–" if score is None else between(score.value, score.low, score.high, signed=True)
