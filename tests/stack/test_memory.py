"""Sizes of batches from the memory that is free."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from layerwise.stack import memory
from layerwise.stack.memory import batch_size_within, free_memory


def test_a_batch_takes_no_more_than_its_share() -> None:
    for free in (10_000, 123_456, 10**9):
        for each in (3.0, 7.5, 1000.0):
            size = batch_size_within(free, each, most=10**12, fixed=100.0)
            assert size * each + 100 <= free / 4 < (size + 1) * each + 100
    assert batch_size_within(1, 1000.0, most=5) == 1


def test_the_free_memory_is_what_the_machine_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "meminfo"
    file.write_text("MemTotal:  9000 kB\nMemAvailable:    4321 kB\n")
    monkeypatch.setattr(memory, "_MEMINFO", file)
    assert free_memory("cpu") == 4321 * 1024
    monkeypatch.setattr(memory, "_MEMINFO", tmp_path / "none")
    assert free_memory("cpu")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (77, 100))
    assert free_memory("cuda") == 77
    assert free_memory("meta") is None
