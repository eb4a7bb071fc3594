"""The share of a run, the rate that follows it, and the log that a resumed run reads."""

from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import pytest

from tools.demo import callbacks as module
from tools.demo.callbacks import Progress


class Clock:
    now = 0.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    wound = Clock()
    monkeypatch.setattr(module, "time", wound)
    return wound


def test_the_nearer_end_decides_the_share(tmp_path: Path, clock: Clock) -> None:
    progress = Progress(tmp_path / "log", steps=100, warmup_steps=10, minutes=10)
    assert progress.share(25) == 0.25
    clock.now = 300.0
    assert progress.share(25) == 0.5
    assert progress.share(75) == 0.75
    clock.now = 900.0
    assert progress.share(25) == 1.0


def test_the_rate_warms_up_and_comes_down_to_zero(tmp_path: Path, clock: Clock) -> None:
    progress = Progress(tmp_path / "log", steps=1000, warmup_steps=10)
    rates = [progress.rate(step) for step in range(1001)]
    assert rates[0] == pytest.approx(0.1)
    assert max(rates) == pytest.approx(1.0, abs=1e-3)
    assert rates[500] == pytest.approx(0.5)
    assert rates[1000] == pytest.approx(0.0, abs=1e-12)
    assert all(later <= earlier for earlier, later in pairwise(rates[10:]))


def test_a_resumed_run_forgets_what_came_after_its_checkpoint(tmp_path: Path, clock: Clock) -> None:
    log = tmp_path / "log"
    first = Progress(log, steps=100, warmup_steps=1, minutes=1)
    for step in (10, 20, 30):
        clock.now = float(step)
        first.write(step, loss=1.0)
    clock.now = 1000.0
    second = Progress(log, steps=100, warmup_steps=1, minutes=1)
    second.resume(20)
    assert [line["step"] for line in second.lines()] == [10, 20]
    assert second.seconds == 20.0
    assert second.share(20) == pytest.approx(1 / 3)


@pytest.mark.parametrize(("step", "ends"), [(99, False), (100, True)])
def test_the_last_step_stops_and_saves(tmp_path: Path, clock: Clock, step: int, ends: bool) -> None:
    control = SimpleNamespace(should_training_stop=False, should_save=False)
    Progress(tmp_path / "log", steps=100, warmup_steps=1).on_step_end(None, SimpleNamespace(global_step=step), control)
    assert (control.should_training_stop, control.should_save) == (ends, ends)
