"""What the report says of fine-tuning with layer weights and without: ratios, bounds, and what is missing."""

from __future__ import annotations

from layerwise.report.pretraining.chapters.fine_tuning import fine_tuning
from layerwise.report.pretraining.fine_tuning import WEIGHTS_IN, fine_tuning_findings, fine_tuning_rows
from layerwise.report.pretraining.lookup import PretrainingScores

from layerwise.report import Evidence, ReportData
from report import pretrained

FOUND = PretrainingScores.of([*pretrained.tuning(), pretrained.row("glue", "elc", "rte", "accuracy", 0.56, 0.03)])


def test_the_finding_is_over_all_tasks_and_names_bounds() -> None:
    (finding,) = fine_tuning_findings(FOUND)
    assert finding.state == "unresolved"
    assert "(rte 0.580 and cola 0.310)" in finding.text
    assert "weights in both: steps ×0.800 [0.700, 0.900], seconds ×0.800 [0.700, 0.900]." in finding.text
    assert "weights in pretraining only: steps at least ×1.20, seconds at least" in finding.text
    assert "weights in fine-tuning only: steps ×1.02 [0.92, 1.12] (not distinguishable, p 0.60), " in finding.text


def test_the_table_has_a_row_for_each_task_and_arm() -> None:
    rows = fine_tuning_rows(FOUND, WEIGHTS_IN).body
    assert [row[:3] for row in rows[:4]] == [
        ("rte", "ltg", "neither"), ("rte", "elc-kept", "pretraining"), ("rte", "ltg-rewired", "fine-tuning"),
        ("rte", "elc", "both"),
    ]  # fmt: skip
    assert rows[1][4:6] == ("≥ 288", "≥ ×1.20")
    assert rows[3][3].startswith("0.56")
    assert len(rows) == 8


def test_where_the_backbone_does_not_always_reach_the_score_a_ratio_is_an_upper_bound_or_none() -> None:
    never = [
        pretrained.row("tuning_convergence", "ltg", f"rte {cost}", "censored", 0.33) for cost in ("steps", "seconds")
    ]
    run = PretrainingScores.of([*pretrained.tuning(), *never])
    (finding,) = fine_tuning_findings(run)
    assert "at least" not in finding.text
    assert "weights in both: steps at most ×0.80, seconds at most ×0.80" in finding.text
    assert "weights in pretraining only: steps not known, as neither always reaches it" in finding.text
    rows = fine_tuning_rows(run, WEIGHTS_IN).body
    assert rows[0][4:6] == ("≥ 240", "–")
    assert rows[1][5] == "–"
    assert rows[3][5].startswith("≤ ×0.80")


def test_a_run_without_learning_curves_says_what_takes_them() -> None:
    empty = fine_tuning(Evidence.of(ReportData({}, (), (pretrained.row("masked_lm", "elc", "test", "nll", 4.0),))))
    assert empty.is_empty
