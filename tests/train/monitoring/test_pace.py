"""The pace of a training, on a clock that the test holds: steps are timed, validations and checkpoints are not."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from layerwise.train.training_log import Pace, figures_of, peak_of, seconds_a_step


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A clock that moves when it is told to."""
    found = SimpleNamespace(now=0.0)
    monkeypatch.setattr("layerwise.train.training_log.time.perf_counter", lambda: found.now)
    return found


ARGUMENTS = SimpleNamespace(
    per_device_train_batch_size=4, gradient_accumulation_steps=2, world_size=2, peak_flops=None,
    device=torch.device("cpu"),
)  # fmt: skip


def test_a_step_is_timed_without_the_validation_and_the_saving_before_it(clock: Any) -> None:
    pace, state = Pace(), SimpleNamespace(global_step=3, total_flos=0)
    for seconds, event in ((5, "step_end"), (2, "step_end"), (100, "evaluate"), (40, "save"), (3, "step_end")):
        clock.now += seconds
        getattr(pace, f"on_{event}")(None, state, None)
    assert pace.taken == [2, 3], "the first step has no step before it"
    assert pace.notes(ARGUMENTS, state)["step_seconds"] == 2.5
    assert pace.taken == []
    assert pace.notes(ARGUMENTS, state).keys() == {"peak_bytes"}


def test_what_steps_read_waited_for_and_used_is_that_of_the_steps_since_the_last_note(clock: Any) -> None:
    pace, state = Pace(), SimpleNamespace(global_step=10, total_flos=500.0)
    pace.on_train_begin(None, state, None)
    for _ in range(3):
        for seconds, event in ((1, "step_begin"), (3, "step_end")):
            clock.now += seconds
            getattr(pace, f"on_{event}")(None, state, None)
        for _ in range(2):
            pace.count({"input_ids": torch.ones(4, 6), "attention_mask": torch.tensor([[1, 1, 1, 0, 0, 0]] * 4)})
        state.global_step += 1
    state.total_flos += 3 * 8_000
    notes = pace.notes(SimpleNamespace(**{**vars(ARGUMENTS), "peak_flops": 10_000.0}), state)
    assert notes["data_wait"] == 0.25
    assert notes["examples_per_second"] == 4 * 2 * 2 / 4
    assert notes["tokens_per_second"] == 12 * 2 * 2 / 4
    assert notes["mfu"] == pytest.approx(8_000 / (4 * 10_000 * 2))
    state.global_step += 1
    assert "mfu" not in pace.notes(ARGUMENTS, state)


@pytest.mark.parametrize(
    ("device", "half", "float32"),
    [
        ("NVIDIA H100 80GB HBM3", 989.4, 66.9), ("NVIDIA H100 PCIe", 756.0, 51.2), ("NVIDIA H200", 989.4, 66.9),
        ("NVIDIA A100-SXM4-80GB", 312.0, 19.5), ("NVIDIA L4", 121.0, 30.3), ("NVIDIA L40S", 362.0, 91.6),
        ("NVIDIA GeForce RTX 4090", 165.2, 82.6), ("Tesla T4", 65.0, 8.1), ("NVIDIA L400", None, None),
    ],
)  # fmt: skip
def test_the_peak_of_a_device_is_found_by_its_name(device: str, half: float | None, float32: float | None) -> None:
    found = [peak_of(device, precision) for precision in ("bfloat16", "float32")]
    assert found == [each and pytest.approx(each * 1e12) for each in (half, float32)]


def test_the_pace_of_a_phase_is_that_of_the_notes_within_it() -> None:
    history = [{"step": step, "step_seconds": float(step)} for step in (2, 4, 6, 8)]
    history.append({"step": 6})
    assert seconds_a_step(history, 2, 6) == 5
    assert seconds_a_step(history, 0, 2) == 2
    assert seconds_a_step(history, 8, 12) is None
    assert figures_of(history) == {"step_seconds": 5}
