"""A watch keeps its peak, also where another sets the kernel's mark back while it is open."""

from __future__ import annotations

from mmap import PAGESIZE, mmap

import pytest
import torch

from layerwise.measure.cost import peak_memory
from layerwise.measure.cost.peak_memory import PeakMemory, forget_peak


def test_a_watch_within_a_watch_takes_nothing_from_it(monkeypatch: pytest.MonkeyPatch) -> None:
    held = [10]
    monkeypatch.setattr(peak_memory, "peak_bytes", lambda: held[0])
    with PeakMemory() as outer:
        held[0] = 50
        with PeakMemory() as inner:
            held[0] = 20  # the mark was set back
            assert inner.most == 20
        forget_peak()
        held[0] = 15
        assert outer.most == 50
    held[0] = 99
    assert outer.most == 50


def test_memory_that_was_held_and_let_go_counts() -> None:
    with PeakMemory() as watch:
        before = watch.most
        with mmap(-1, 64 * 2**20) as block:  # new pages: an allocator would hand out what it has kept
            for page in range(0, len(block), PAGESIZE):
                block[page] = 1
        after = watch.most
    assert after - before > 32 * 2**20 or torch.cuda.is_available()
