"""Variants compared with the backbone: verdicts and bounds; tests/golden freezes the texts."""

import pytest

from layerwise.results.rows import Score
from layerwise.results.vocabulary import STUDY, TOKENS
from layerwise.studies.train_elc import page_compared as page
from page.planted import of

PAIR = {"variant": "elc", "against": "ltg"}


def compared(task: str, value: float, low: float, high: float, p: float, **more: float) -> Score:
    return Score(STUDY, "difference", value, low, high, p, task=task, unit=TOKENS, **PAIR, **more)


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize(("task", "better"), [("masked_lm", -1), ("pairs", 1)])
def test_more_loss_is_worse_and_more_accuracy_better(task: str, better: int, sign: int) -> None:
    low, high = sorted((sign * 0.05, sign * 0.2))
    (finding,) = page.difference_findings(of(compared(task, sign * 0.1, low, high, 0.01)))
    word, verdict = ("Better", "supported") if sign == better else ("Worse", "contradicted")
    assert finding.answer.startswith(f"{word} in ")
    assert finding.verdict == verdict
