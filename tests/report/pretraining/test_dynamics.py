"""What is said of steps to a loss that trainings never reach: which bound is left, if any."""

from __future__ import annotations

import pytest
from layerwise.report.pretraining.dynamics import dynamics_findings
from layerwise.report.pretraining.lookup import PretrainingScores

from layerwise.results.rows import Score


@pytest.mark.parametrize(
    ("never", "said"),
    [
        (("elc",), "elc at least ×0.80 (50 % of its trainings never reach it)"),
        (("ltg",), "elc at most ×0.80 (50 % of the trainings of ltg never reach it)"),
        (("elc", "ltg"), "elc not known: trainings of elc and of ltg never reach it"),
    ],
)
def test_a_ratio_of_censored_costs_is_a_bound_or_nothing(never: tuple[str, ...], said: str) -> None:
    rows = [
        *(Score("training", f"{arm}/{seed}", "all", "steps", 100.0) for arm in ("ltg", "elc") for seed in range(2)),
        Score("convergence", "elc - ltg", "steps", "ratio", 0.8),
        *(Score("convergence", arm, "steps", "censored", 0.5) for arm in never),
    ]
    (finding,) = dynamics_findings(PretrainingScores.of(rows))
    assert said in finding.text
    assert finding.state == "unresolved"
