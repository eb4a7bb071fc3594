"""Probing subtracts the untrained model; tests/golden/probing-planted freezes the texts."""

from dataclasses import replace

import pytest

from layerwise.studies.evaluate.probing import by_state, findings
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
    return " ".join(findings(replace(RUN, scores=tuple(rows))))


@pytest.mark.parametrize(
    ("gain", "difference", "is_learned", "side"),
    [
        (0.2, 0.1, True, "gives linguistic features more than surface ones at the states 0, 1, 2"),
        (0.2, -0.2, True, "gives surface features more than linguistic ones"),
        (0.01, 0.01, False, "gives linguistic or surface features more"),
        (-0.01, -0.01, False, "gives linguistic or surface features more"),
    ],
)
def test_what_is_learned_and_which_side_gains_more(gain: float, difference: float, is_learned: bool, side: str) -> None:
    said = text(gain, difference)
    assert ("nothing shows that it takes training" in said) is not is_learned
    assert side in said
    assert ("At every state it is inconclusive" in said) is not is_learned


def test_arms_are_told_apart_and_seeds_are_averaged() -> None:
    drawn = list(by_state(RUN))
    assert len([row for row in drawn if row.against is None]) == 2 * 2 * 3
    assert len([row for row in drawn if row.against == "shuffled"]) == 2 * 3
    (row,) = (each for each in drawn if (each.arm, each.task, each.state, each.against) == ("elc", "length", 0, None))
    assert row.value == pytest.approx(0.61)
    alone = (replace(row, arm=None, seed=None) for row in RUN.rows.where(arm="elc", seed=0))
    assert "length of a word: read best at state 2, 80.0 % [75.0, 85.0]" in " ".join(findings(of(*alone)))
