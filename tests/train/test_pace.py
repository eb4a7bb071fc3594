"""The pace of a training, on a clock that the test holds: steps are timed, validations and checkpoints are not."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from layerwise.train.pace import Pace, figures_of, seconds_a_step


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A clock that moves when it is told to."""
    found = SimpleNamespace(now=0.0)
    monkeypatch.setattr("layerwise.train.pace.time.perf_counter", lambda: found.now)
    return found


def test_a_step_is_timed_without_the_validation_and_the_saving_before_it(clock: Any) -> None:
    pace, state = Pace(), SimpleNamespace(log_history=[{"step": 3}])
    for seconds, event in ((5, "step_end"), (2, "step_end"), (100, "evaluate"), (40, "save"), (3, "step_end")):
        clock.now += seconds
        getattr(pace, f"on_{event}")(None, state, None)
    assert pace.taken == [2, 3], "the first step has no step before it"
    pace.on_log(None, state, None)
    assert state.log_history[-1]["step_seconds"] == 2.5
    assert pace.taken == []


def test_the_pace_of_a_phase_is_that_of_the_notes_within_it() -> None:
    history = [{"step": step, "step_seconds": float(step)} for step in (2, 4, 6, 8)]
    history.append({"step": 6})
    assert seconds_a_step(history, 2, 6) == 5
    assert seconds_a_step(history, 0, 2) == 2
    assert seconds_a_step(history, 8, 12) is None
    assert figures_of(history) == {"step_seconds": 5}
