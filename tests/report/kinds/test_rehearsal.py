"""A rehearsal: no difference beyond its interval, what was refused, and what guessing scores."""

from __future__ import annotations

from dataclasses import replace

import pytest

from layerwise.report.kinds.rehearsal import REHEARSAL_KIND, findings
from tools.golden.outputs import stored

RUN = stored("rehearsal-images")


@pytest.mark.parametrize(("low", "high", "words"), [(0.05, 0.15, "above"), (-0.15, -0.05, "below"), (-0.01, 0.15, "")])
def test_an_arm_differs_from_the_baseline_only_where_the_interval_says_so(low: float, high: float, words: str) -> None:
    rows = (
        replace(row, value=(low + high) / 2, low=low, high=high) if row.metric == "accuracy_above" else row
        for row in RUN.scores
    )
    changed = replace(RUN, scores=tuple(rows))
    assert (f"layershuffle {words} it (2 replicas, 1 dead)" in REHEARSAL_KIND.answer(changed)) is bool(words)
    sentence = next(text for text in findings(changed) if "against baseline" in text)
    assert ("not resolvable in 3 draws" in sentence.partition(";")[2]) is not bool(words)


def test_where_all_requests_were_refused_the_sentence_says_so() -> None:
    left = replace(RUN, scores=tuple(row for row in RUN.scores if row.amount not in (1, 2)))
    assert "baseline, 3 of 3 nodes dead, 2 replicas: every request was refused." in findings(left)
