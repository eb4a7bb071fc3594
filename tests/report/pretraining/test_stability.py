"""What is said of the stability of trainings."""

from __future__ import annotations

from layerwise.report.pretraining.lookup import PretrainingScores
from layerwise.report.pretraining.stability import stability_findings

from layerwise.results.rows import Score


def test_trainings_with_a_spike_are_counted_among_those_that_were_judged() -> None:
    """The third training noted too few losses, so that half of two had a spike, and not half of three."""
    rows = [
        *(Score("training", f"elc/{seed}", "all", "steps", 100.0) for seed in range(3)),
        *(Score("stability", f"elc/{seed}", "all", "spikes", float(seed)) for seed in range(2)),
        Score("stability", "elc", "all", "spiked", 0.5, 0.1, 0.9),
    ]
    (finding,) = stability_findings(PretrainingScores.of(rows, 0.05))
    assert "elc 1 of 2 trainings with a spike" in finding.text
