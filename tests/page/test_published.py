"""Properties of every finding on a published statement; tests/golden freezes their verdicts and answers."""

from dataclasses import replace

import pytest

from layerwise.page import ReportData
from layerwise.page.kinds import judge_published
from page import planted
from page.planted import of, row


def test_non_finite_values_count_as_not_measured() -> None:
    assert judge_published(of(row("deltas", "correlation", float("nan"), 0.1, distance=1))) == ()


@pytest.mark.parametrize(
    "run", [planted.DIAGNOSIS, planted.GROWTH, planted.ROBUSTNESS], ids=["diagnosis", "growth", "robustness"]
)
def test_findings_do_not_depend_on_row_order(run: ReportData) -> None:
    turned = replace(run, scores=tuple(reversed(run.scores)))
    assert judge_published(turned) == judge_published(run) != ()
