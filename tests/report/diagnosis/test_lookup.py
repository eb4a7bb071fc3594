"""Rows of a diagnosis found by what they are about."""

from __future__ import annotations

from layerwise.report.diagnosis.lookup import DiagnosisScores, depth_of
from report import diagnosed
from report.diagnosed import row


def of(*rows: object) -> DiagnosisScores:
    return DiagnosisScores.of(rows, 12)  # type: ignore[arg-type]


def test_layers_halves_and_pairs_are_told_apart() -> None:
    found = of(*(row("ablation", subject, "skip", 1.0) for subject in ("10", "2", "2.attn", "2.mlp", "2,3", "all")))
    assert list(found.layers("ablation", "skip")) == [2, 10]
    assert list(found.layers("ablation", "skip", part="mlp")) == [2]
    assert list(found.pairs("ablation", "skip")) == [(2, 3)]


def test_nulls_belong_to_their_metric_and_task_alone() -> None:
    found = of(
        row("deltas", "1", "correlation", 0.0),
        row("deltas", "1", "correlation@shuffled", 0.0),
        row("deltas", "1", "correlation@twin", 0.0, task="q"),
        row("deltas", "1", "correlations@other", 0.0),
    )
    assert found.nulls("deltas", "correlation") == ("shuffled",)
    assert found.metrics("deltas") == ("correlation",)


def test_a_confirmed_verdict_outranks_the_race() -> None:
    found = of(
        row("verdict", "1", "no_effect", 0.0), row("racing", "1", "matters", 0.1), row("racing", "0", "matters", 1.0)
    )
    assert {layer: score.metric for layer, score in found.verdicts().items()} == {0: "matters", 1: "no_effect"}


def test_what_is_not_finite_was_not_measured() -> None:
    found = of(row("deltas", "1", "correlation", float("inf")))
    assert found.measures == ()
    assert found.score("deltas", "1", "correlation") is None


def test_depth_comes_from_layers_and_not_from_lags_or_states() -> None:
    assert depth_of([row("deltas", "5", "correlation", 0.0), row("proxies", "12", "logit_lens", 0.0)]) == 0
    assert depth_of(diagnosed.scores(9)) == 9
