"""Sizes of batches from the memory that is free."""

from __future__ import annotations

import os
import platform
from pathlib import Path

import pytest
import torch

from layerwise.stack import memory
from layerwise.stack.placement import batch_size_within, free_memory, release_freed


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


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="memory goes back by glibc's malloc_trim")
def test_freed_memory_goes_back_to_the_system() -> None:
    """Small blocks, every other one of which is freed: nothing but whole pages in between can go back."""
    held = [b"x" * 50_000 for _ in range(2_000)]  # `bytes` would take pages that nobody has written to
    before = _resident()
    del held[::2], held[500:]
    release_freed()
    assert _resident() < before - 40_000_000
    assert len(held) == 500
