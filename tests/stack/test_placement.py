"""Device and precision of a module, whose weights may be buffers or absent."""

import os
import platform
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from transformers import PretrainedConfig

from apart import apart
from conftest import tiny_llama
from layerwise.plan import Plan
from layerwise.stack import load, placement, verify
from layerwise.stack.blocks import find_blocks
from layerwise.stack.placement import batch_size_within, device_of, dtype_of, free_memory, release_freed

IDS = torch.randint(0, 11, (2, 5), generator=torch.Generator().manual_seed(0))


class Frozen(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("weight", torch.randn(4, 4))

    def forward(self, x: Tensor) -> Tensor:
        return x + torch.tanh(x @ self.weight)


class FrozenModel(nn.Module):
    main_input_name = "input_ids"

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.config = PretrainedConfig(vocab_size=11)
        self.register_buffer("table", torch.randn(11, 4))
        self.small = nn.ModuleList([nn.Identity(), nn.Identity()])
        self.blocks = nn.ModuleList([Frozen() for _ in range(3)])

    def forward(self, input_ids: Tensor) -> Tensor:
        x = self.table[input_ids]
        for block in self.blocks:
            x = block(x)
        return x @ self.table.T


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_a_model_whose_weights_are_buffers_runs_plans(dtype: torch.dtype) -> None:
    model = FrozenModel().to(dtype)
    assert find_blocks(model) == "blocks"
    stack = load(model)
    assert (stack.device, stack.dtype) == (torch.device("cpu"), dtype)
    with torch.no_grad():
        expected = model.blocks[0](model.blocks[2](model.table[IDS])) @ model.table.T
        assert torch.equal(stack.logits(Plan.parse("2 0"), input_ids=IDS), expected)
    assert [law.holds for law in verify(stack, Plan.parse("2 (0|1)"))] == [True] * 4 + [None] * 4


def test_the_first_tensor_that_computes_says_where_and_how() -> None:
    model = tiny_llama(2).double()
    assert (device_of(model), dtype_of(model)) == (torch.device("cpu"), torch.float64)
    assert device_of(nn.Linear(2, 2, device="meta")) == torch.device("meta")
    packed = nn.Module()
    packed.register_buffer("packed", torch.zeros(3, dtype=torch.uint8, device="meta"))
    packed.register_buffer("scale", torch.ones(1, dtype=torch.float16, device="meta"))
    assert (device_of(packed), dtype_of(packed)) == (torch.device("meta"), torch.float16)


def test_a_module_that_holds_nothing_computes_on_the_cpu_in_float32() -> None:
    assert (device_of(nn.Identity()), dtype_of(nn.Identity())) == (torch.device("cpu"), torch.float32)


def test_a_batch_takes_no_more_than_its_share() -> None:
    for free in (10_000, 123_456, 10**9):
        for each in (3.0, 7.5, 1000.0):
            size = batch_size_within(free, each, most=10**12, fixed=100.0)
            assert size * each + 100 <= free / 4 < (size + 1) * each + 100
    assert batch_size_within(1, 1000.0, most=5) == 1


def test_the_free_memory_is_what_the_machine_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "meminfo"
    file.write_text("MemTotal:  9000 kB\nMemAvailable:    4321 kB\n")
    monkeypatch.setattr(placement, "_MEMINFO", file)
    assert free_memory("cpu") == 4321 * 1024
    monkeypatch.setattr(placement, "_MEMINFO", tmp_path / "none")
    assert free_memory("cpu")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (77, 100))
    assert free_memory("cuda") == 77
    assert free_memory("meta") is None


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def free_every_other() -> None:
    held = [b"x" * 50_000 for _ in range(2_000)]  # `bytes` would take pages that nobody has written to
    before = _resident()
    del held[1:-1:2]  # the last one stays: what is behind all others goes back by itself
    release_freed()
    assert _resident() < before - 40_000_000
    assert len(held) == 1_001


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="memory goes back by glibc's malloc_trim")
def test_freed_memory_goes_back_to_the_system() -> None:
    ended = apart(free_every_other)
    assert ended.code == 0, ended.err
