"""Accuracy on minimal pairs as a table for a terminal."""

from __future__ import annotations

from layerwise.data.suites.minimal_pairs import PairSet
from layerwise.measure.language.minimal_pairs import ALL, CHANCE
from layerwise.results import Run


def pairs_table(run: Run, pairs: PairSet) -> str:
    """The accuracy of every arm over all paradigms, with its interval, and the share of words that it knows."""
    lines = [f"{pairs.suite} ({pairs.origin}; chance {CHANCE}):"]
    known, whole = (
        {row.subject: row.value for row in run.store.scores(pairs.suite, task=ALL, metric=metric)}
        for metric in ("coverage", "whole_words")
    )
    for row in run.store.scores(pairs.suite, task=ALL, metric="accuracy"):
        if "/" not in row.subject and row.low is not None and row.high is not None:
            lines.append(
                f"  {row.subject:24} {row.value:.3f} [{row.low:.3f}, {row.high:.3f}]   "
                f"{known[row.subject]:.1%} of words known, {whole[row.subject]:.1%} as one token"
            )
    return "\n".join(lines)
