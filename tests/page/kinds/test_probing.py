"""The page of a probe: findings are relative to the randomly initialized model."""

from dataclasses import replace

import pytest

from layerwise.studies.evaluate.probing import write_findings
from tools.golden.outputs import stored

RUN = stored("probing-planted")


def text(gain: float, difference: float) -> str:
    values = {"accuracy_above": gain, "difference": difference}
    rows = (
        replace(row, value=value, low=value - 0.05, high=value + 0.05)
        if (value := values.get(row.metric)) is not None
        else row
        for row in RUN.scores
    )
    return " ".join(write_findings(replace(RUN, scores=tuple(rows))))


@pytest.mark.parametrize(
    ("gain", "difference", "is_learned", "side"),
    [
        (0.2, 0.1, True, "improves linguistic features more than surface ones at states 0, 1, 2"),
        (0.2, -0.2, True, "improves surface features more than linguistic ones"),
        (0.01, 0.01, False, "improves linguistic or surface features more"),
        (-0.01, -0.01, False, "improves linguistic or surface features more"),
    ],
)
def test_findings_follow_the_intervals(gain: float, difference: float, is_learned: bool, side: str) -> None:
    said = text(gain, difference)
    assert ("randomly initialized model, which is inconclusive" in said) is not is_learned
    assert side in said
    assert ("is inconclusive at every state" in said) is not is_learned
