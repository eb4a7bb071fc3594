"""Accuracy on minimal pairs as a table for a terminal."""

from __future__ import annotations

from layerwise.data.suites.minimal_pairs import PairSet
from layerwise.measure.language.minimal_pairs import CHANCE
from layerwise.results import Run
from layerwise.results.selection import Rows
from layerwise.results.vocabulary import ALL


def pairs_table(run: Run, pairs: PairSet) -> str:
    """The accuracy of every arm over all paradigms, with its interval, and the share of words that it knows."""
    lines = [f"{pairs.suite} ({pairs.origin}; chance {CHANCE}):"]
    rows = Rows(run.store.scores(pairs.suite, task=ALL)).where(seed=None)
    known, whole = (rows.where(metric=metric).along("arm") for metric in ("coverage", "whole_words"))
    for arm, row in rows.where(metric="accuracy").along("arm").items():
        if row.low is not None and row.high is not None:
            lines.append(
                f"  {arm:24} {row.value:.3f} [{row.low:.3f}, {row.high:.3f}]   "
                f"{known[arm].value:.1%} of words known, {whole[arm].value:.1%} as one token"
            )
    return "\n".join(lines)
