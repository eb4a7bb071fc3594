"""The page of a probe: findings are relative to the randomly initialized model."""

from dataclasses import replace

import pytest

from layerwise.studies.evaluate.probing import derive_states, write_findings
from page.planted import of
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
    assert ("randomly initialized model, inconclusive" in said) is not is_learned
    assert side in said
    assert ("is inconclusive at every state" in said) is not is_learned


def test_variants_are_separate_and_seeds_are_averaged() -> None:
    drawn = list(derive_states(RUN))
    assert len([row for row in drawn if row.against is None]) == 2 * 2 * 3
    assert len([row for row in drawn if row.against == "shuffled"]) == 2 * 3
    (row,) = (each for each in drawn if (each.arm, each.task, each.state, each.against) == ("elc", "length", 0, None))
    assert row.value == pytest.approx(0.61)
    alone = (replace(row, arm=None, seed=None) for row in RUN.rows.where(arm="elc", seed=0))
    assert "word length: best at state 2, 80.0 % [75.0, 85.0]" in " ".join(write_findings(of(*alone)))
