"""Variants compared with the backbone: verdicts and bounds; tests/golden freezes the texts."""

import pytest

from layerwise.results.rows import Score
from layerwise.results.vocabulary import CONVERGENCE, DATA_SHARE, STUDY, TOKENS
from layerwise.studies.train_elc import page_compared as page
from page.planted import of

PAIR = {"arm": "elc", "against": "ltg"}


def compared(task: str, value: float, low: float, high: float, p: float, **more: float) -> Score:
    return Score(STUDY, "difference", value, low, high, p, task=task, unit=TOKENS, **PAIR, **more)


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize(("task", "better"), [("masked_lm", -1), ("pairs", 1)])
def test_more_loss_is_worse_and_more_accuracy_better(task: str, better: int, sign: int) -> None:
    low, high = sorted((sign * 0.05, sign * 0.2))
    (finding,) = page.difference_findings(of(compared(task, sign * 0.1, low, high, 0.01)))
    word, verdict = ("Better", "supported") if sign == better else ("Worse", "contradicted")
    assert finding.answer.startswith(f"{word}: ")
    assert finding.verdict == verdict


def test_what_falls_to_the_correction_is_said_to() -> None:
    (finding,) = page.difference_findings(of(compared("pairs", 0.1, 0.01, 0.2, 0.04, p_adjusted=0.12)))
    assert finding.answer.startswith("Inconclusive after correction for the number of variants (p 0.12): ")
    (bare,) = page.difference_findings(of(Score(STUDY, "difference", 0.1, task="pairs", unit=TOKENS, **PAIR)))
    assert (bare.answer[:11], bare.verdict) == ("No interval", None)


def test_accuracies_are_in_points() -> None:
    (finding,) = page.difference_findings(of(compared("pairs", 0.021, 0.01, 0.032, 0.01)))
    assert "+2.10 points [+1.00, +3.20]" in finding.answer


def test_ratios_of_costs_are_read_by_their_intervals() -> None:
    ratio = Score(CONVERGENCE, "ratio", 0.9, 0.8, 1.02, 0.2, p_adjusted=0.2, unit="steps", **PAIR)
    (finding,) = page.convergence_findings(of(ratio, Score(CONVERGENCE, "loss", 4.2)))
    assert finding.answer == "Relative to the backbone: elc ×0.90 [0.80, 1.02] (not distinguishable, p 0.20)."
    assert (finding.verdict, finding.question[-33:]) == (
        "inconclusive",
        "(validation loss at least 4.200)?",
    )


def test_shares_are_read_by_their_intervals() -> None:
    grown = Score(DATA_SHARE, "by_halving", 0.1, -0.1, 0.3, 0.4, p_adjusted=0.4, task="pairs", **PAIR)
    (open_one,) = page.share_findings(of(grown))
    assert open_one.answer.endswith("each halving adds +10.0 points [−10.0, +30.0], inconclusive.")
